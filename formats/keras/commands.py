"""The command line's offers for Keras alone."""

from __future__ import annotations

from rnnconvert.core.room_command import RoomCommand

COMMANDS = (
    RoomCommand(
        name="upgrade",
        what="Rewrite an old Keras model for Keras 3",
        summary="Rewrite OLD, a whole model of Keras 1, Keras 2 or tf.keras, as the Keras 3 file NEW.",
        examples=(
            "rnnconvert upgrade old.h5 new.keras",
            "rnnconvert upgrade old.h5 new.keras --verify",
            "rnnconvert upgrade weights.h5 new.keras --config model.json",
            "rnnconvert upgrade old.h5 new.keras --dry-run --json",
        ),
        notes="NEW opens with keras.saving.load_model, in safe mode and without custom objects. A layer or setting without an "
        "equivalent in Keras 3 is refused by name; what only training needs is left out, and named.",
        function="rnnconvert.formats.keras.upgrade.files.upgrade",
        source="OLD",
        target="NEW",
        options={
            "config": "If OLD has weights alone: its model, as model.to_json wrote it.",
            "verify": "Run OLD in tf_keras, NEW in Keras; keep NEW only if they agree.",
        },
        files={"config": "FILE.json"},
    ),
)
