"""What spar costs, beside the least that its work can cost and beside its peers, in one run on one machine.

`benchmarks/run.sh` makes an environment and prints one table; docs/explanation/performance.md says how it is measured.

    harness      contenders in shuffled rounds, each between two runs of the limit
    table        a line for each goal, and whether it was reached
    duties       what each contender does, beside its figures
    history      a file of runs, and the newest beside the one before
    profile      where the time of a row goes, by named step
    counted      an agent that turns exactly n cycles
    peers        the same cycle in other libraries
    graphs       graphs of calls, and the least that carrying them out can cost
    calling      the executor on those graphs
    call_peers   those graphs in other libraries
    journalled   agents that keep a journal, in a file of their own
    rows         the least that making a cycle durable can cost
    durable_peers    a durable cycle in other libraries
    resumed      a cycle that was killed and goes on in the next process
    beat         how late the event loop comes round to a beat of the kernel's
    model_server    a scripted model in a process of its own, at 50 tokens a second
    model_shapes    plans as it writes them, and the least time that they can take
    cycle, many, footprint, publish, accounting    what is measured of the loop
    durable, flushed, held_up, startup             what is measured of the journal
    calls, chain, growth, makespan, streamed       what is measured of the executor
    model_call, model_plan, model_run, prompts     what is measured of planning by a model
    kept                                           what is measured of a message when much was learnt or met before
    traced                                         what traces add to a cycle
    environments                                   environments in which an agent lives and learns
    learning, perception                           whether it learns, and what it notices: commands of their own
    chatted                                        what is measured of a conversation at a terminal
    watched                                        what is measured of spar top
    console                                        what is measured of the page for browsers
"""
