"""One module a runtime: recurrent layers run by a framework, on a file or on its own arrays.

A module here that has VARIANTS is an executor. It imports numpy and, inside its functions, its framework, and of
rnnconvert at most rnnconvert.running.sequences, which shapes requests and answers and knows no weights: so it cannot pass
through the code that it judges, and any Python that has numpy and the framework can run it, however old, without
rnnconvert (rnnconvert.running.child). It has

    NEEDS      the packages that it imports
    FORMAT     the format whose files it runs, and SUFFIX, the ending of one that is made for it
    DISTRIBUTIONS  if it is there, what pip calls those packages that it calls otherwise
    SUPPORTS   the cells and features that it runs, in words
    VARIANTS   by executor's name: {"device": "cpu" or "cuda", "environment": {...}, ...}; a variant's own "needs",
               "format", "suffix" and "supports" stand in place of those above; "as_written" says that it computes what
               old files of the format say, where today's framework computes something else of them; "rounds_like" says, by
               the element type of the weights, what it rounds like where that is coarser than the type: {"float32":
               "float16"} for TF32. It is an element type, or "float32, tanh to 16 digits" (rnnconvert.judging.rounding)
    CANNOT     if it is there, why it cannot run a request with "how", "lengths" or "cotangents", by those names: such a
               request is refused before `answer` sees it
    absent(variant)   if it is there, why this variant cannot run although NEEDS (and for "cuda" a GPU) are there, or "";
                      it imports no framework
    answer(request)   runs layers of a file
    versions(variant) if it is there, versions by name of what this variant runs beside NEEDS
    witness(request)  if it is there, runs the model of a file whole: see below

Beside them some have a `run` for arrays instead of a file and the `Sequences` of a request, which this project's tests call
without a process between.

A request is a dictionary:

    variant     one of VARIANTS
    file        the file's path
    layers      names of the layers in it, each reading what the one before gives; empty for all that the file computes
    how         what the file does not say, in the framework's own words: {"nonlinearity": "relu"}
    x           (time, batch, in), float32 or float64
    hidden      initial states, layer by layer and in a layer its directions, each (batch, out); None for the default
    cell        initial cell states of LSTMs, each (batch, hidden), likewise, or with a place for every layer; None for the default
    lengths     how many steps of each sequence count, (batch,); None for all
    cotangents  None, or {"y": ..., "hidden": [...], "cell": [...]}: weights of a sum of all outputs, whose gradients are
                asked for
    buffer      for executors with a BUFFER_KEY, whose files are one flat buffer: its numbers, bfloat16 as its bits
    description and what accompanies them in the file: cell, hidden_size, input_size, num_layers ...

and so is the answer:

    y           (time, batch, out), zero past a sequence's length unless `padding` says otherwise
    hidden      final states, ordered and shaped as the initial ones; None where the framework does not give them
    cell        final cell states; empty for other cells
    gradients   of the sum that the cotangents weight, if they were given: {"x", "hidden", "cell", "weights": {layer:
                {name: array}}}, the weights' in the framework's own arrays; "hidden" and "cell" are empty where no
                initial states were given. The layer is "" where a file holds one; a Keras Bidirectional has
                "forward/kernel", of cells in one layer the second has "1/kernel"; cuDNN's flat buffer is "params"; cells
                of JAX's libraries have the paths under the cell's own: "ii/kernel"
    notes       what a reader of the report should know: {"providers": {"gru": "CUDAExecutionProvider"}}; of cuDNN
                "bytes" and "offsets", the layout that the library itself reports (rnnconvert.formats.cudnn.run.layout)

The request of `witness` has variant, file and "witness": {"layers": names of recurrent layers, "seed": of what is drawn, "calls":
the inputs of one call after another, each call a list of [name, array], or None where inputs are drawn, "shakes": how often it runs
once more with other weights, "exact": whether a model that computes in a coarser type than its weights have is to compute in theirs}.
`witness` receives it as a Witness (rnnconvert/running/witness.py): it states the model's inputs to it, lets it `run` the model, and
hands each call of the layers to `record`: what the layer reads and gives there, in the axes above, its mask and its states. A layer
whose calls it cannot record it explains. The answer is that of Witness.answer, or {"misfit": why} for inputs that are not the model's.
An executor without `witness` runs no model whole: what lies between joined layers is then not run, and said to be so.

float16 and bfloat16 outputs are given as float32. `answer` raises NotImplementedError for what the framework
does not do, its message saying what and why; any other error is a failure.
"""
