"""Protection against models that fail: time bounds, kinds of error, circuit breakers and failover.

model_choice     which models may be asked, in which order, and how many tokens each can read
failover         asks the first of several models that is available
breaker          a circuit breaker as a value; pure
provider_errors  classifies errors of providers in a closed table; pure
timeouts         bounds the time and the bytes of a provider's answer
progress         decides whether the requests of a run make progress; pure
"""
