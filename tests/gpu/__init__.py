"""Everything that needs a GPU, run part by part, each in a process of its own: see tests/gpu.sh and docs/gpu.md.

    command     the arguments, and the exit code
    wheels      the packages that a machine without an index receives
    parts       what is run, in which order, and for how long at most
    supervisor  starts a part's process, watches it, and starts another one where it crashes or hangs
    child       that process: one case after the other, each result written at once
    machine     what is here, and what is in the way
    problems    stacks, inputs and truths, the same on every machine
    flat        cuDNN itself on all of them, and what it says of its buffer's layout
    questions   experiments on what the documentation leaves open
    frameworks  the executors, through rnnconvert's own verification
    measures    times on the GPU
    standins    what a machine without a GPU runs in its place
    kept        results as one small file, and the comparison with those kept before
    report      report.html, junit.xml, versions.json and answers.json

Nothing here imports pytest: a machine with a GPU may lack it.
"""
