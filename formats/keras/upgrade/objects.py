"""The successors of functions, initializers, constraints, optimizers and losses of old Keras in Keras 3, as data."""

from __future__ import annotations

FUNCTIONS = (
    "linear", "tanh", "sigmoid", "relu", "softmax", "softplus", "softsign", "elu", "selu", "exponential", "gelu", "silu", "mish",
    "relu6", "log_softmax",
)  # fmt: skip
"""Activations that are the same function under the same name, apart from hard_sigmoid."""


RENAMED_FUNCTIONS = {"swish": "silu"}


INITIALIZERS = {
    "Zeros": "", "Ones": "", "Constant": "value", "RandomNormal": "mean stddev seed", "RandomUniform": "minval maxval seed",
    "TruncatedNormal": "mean stddev seed", "VarianceScaling": "scale mode distribution seed", "Orthogonal": "gain seed", "Identity": "gain",
    **dict.fromkeys(("GlorotNormal", "GlorotUniform", "HeNormal", "HeUniform", "LecunNormal", "LecunUniform"), "seed"),
}  # fmt: skip
"""Initializers of Keras 3 with their keys."""


INITIALIZER_NAMES = {
    "zero": "Zeros", "zeros": "Zeros", "one": "Ones", "ones": "Ones", "normal": "RandomNormal", "uniform": "RandomUniform",
    "glorot_normal": "GlorotNormal", "glorot_uniform": "GlorotUniform", "he_normal": "HeNormal", "he_uniform": "HeUniform",
    "lecun_normal": "LecunNormal", "lecun_uniform": "LecunUniform", "orthogonal": "Orthogonal", "identity": "Identity",
    "random_normal": "RandomNormal", "random_uniform": "RandomUniform", "truncated_normal": "TruncatedNormal",
}  # fmt: skip


REGULARIZERS = {"L1": "l1", "L2": "l2", "L1L2": "l1 l2"}


REGULARIZER_NAMES = {
    "l1": "L1", "l2": "L2", **dict.fromkeys(("l1_l2", "WeightRegularizer", "ActivityRegularizer", "L1L2Regularizer"), "L1L2"),
}  # fmt: skip


CONSTRAINTS = {
    "MaxNorm": "max_value axis m>max_value",
    "NonNeg": "",
    "UnitNorm": "axis",
    "MinMaxNorm": "min_value max_value rate axis low>min_value high>max_value m>max_value",
}


CONSTRAINT_NAMES = {
    "maxnorm": "MaxNorm", "max_norm": "MaxNorm", "nonneg": "NonNeg", "non_neg": "NonNeg", "unitnorm": "UnitNorm", "unit_norm": "UnitNorm",
    "min_max_norm": "MinMaxNorm",
}  # fmt: skip


OPTIMIZERS = {
    "Adam": "learning_rate beta_1 beta_2 epsilon amsgrad",
    "RMSprop": "learning_rate rho momentum epsilon centered",
    "SGD": "learning_rate momentum nesterov",
    "Adagrad": "learning_rate initial_accumulator_value epsilon",
    "Adadelta": "learning_rate rho epsilon",
    "Adamax": "learning_rate beta_1 beta_2 epsilon",
    "Nadam": "learning_rate beta_1 beta_2 epsilon",
    "Ftrl": "learning_rate learning_rate_power initial_accumulator_value l1_regularization_strength l2_regularization_strength beta",
}
"""Optimizers of Keras 3 with the keys that are carried."""


OPTIMIZER_NEUTRAL = {
    "decay": 0.0, "clipnorm": None, "clipvalue": None, "global_clipnorm": None, "weight_decay": None, "use_ema": False,
    "schedule_decay": 0.004, "initial_decay": 0.0,
}  # fmt: skip
"""Further settings of an optimizer; any other value leaves it out."""


OPTIMIZER_ASIDE = ("name", "ema_momentum", "ema_overwrite_frequency", "jit_compile", "is_legacy_optimizer")


LOSSES = {
    name: name for name in (
        "mean_squared_error", "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_logarithmic_error",
        "categorical_crossentropy", "sparse_categorical_crossentropy", "binary_crossentropy", "hinge", "squared_hinge",
        "categorical_hinge", "poisson", "cosine_similarity",
    )
} | {"mse": "mean_squared_error", "mae": "mean_absolute_error", "mape": "mean_absolute_percentage_error",
     "msle": "mean_squared_logarithmic_error"}  # fmt: skip
"""Losses by name that are the same function in Keras 3 (cosine_proximity and kullback_leibler_divergence differ or moved)."""


METRICS = {
    "acc": "accuracy", **{name: name for name in ("accuracy", "categorical_accuracy", "binary_accuracy", "sparse_categorical_accuracy")},
    **{name: new for name, new in LOSSES.items() if not name.endswith("hinge")},
}  # fmt: skip
