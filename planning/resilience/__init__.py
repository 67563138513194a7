"""Protection against models that fail: time bounds, kinds of error, circuit breakers and failover.

failover         asks the first of several models that is available, by a circuit breaker for each
provider_errors  classifies errors of providers in a closed table; pure
timeouts         bounds the time and the bytes of a provider's answer
"""
