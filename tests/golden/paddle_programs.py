"""What the scripts that make Paddle's golden files share; it runs under their Pythons, from 3.7 on."""


def without_places(path, kind):
    """Take out the lines of source that a program notes of each operator: they have the paths of the machine.

    kind  Paddle's own message, ProgramDesc
    """
    program = kind.FromString(path.read_bytes())
    for operator in (one for block in program.blocks for one in block.ops):
        kept = [one for one in operator.attrs if one.name != "op_callstack"]
        del operator.attrs[:]
        operator.attrs.extend(kept)
    path.write_bytes(program.SerializeToString(deterministic=True))
