"""Models that fail: time bounds, faults, breakers and failover.

model_choice     which models may be asked, in which order, and how much each reads
failover         asks the first of several models that is available
breaker          a circuit breaker as a value; pure
provider_errors  classifies errors of providers in a closed table; pure
timeouts         bounds the time and the bytes of a provider's answer
progress         tells whether the requests of a run make progress; pure
"""
