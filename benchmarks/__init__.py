"""What spar costs, beside the least that its work can cost and beside its peers, in one run on one machine.

`benchmarks/run.sh` makes an environment and prints one table; docs/performance.md says how it is measured.

    harness      contenders in shuffled rounds, each between two runs of the limit
    table        a line for each goal, and whether it was reached
    counted      an agent that turns exactly n cycles
    peers        the same cycle in other libraries
    graphs       graphs of calls, and the least that carrying them out can cost
    calling      the executor on those graphs
    call_peers   those graphs in other libraries
    cycle, many, footprint, publish, accounting    what is measured of the loop
    calls, chain, growth, makespan, streamed       what is measured of the executor
"""
