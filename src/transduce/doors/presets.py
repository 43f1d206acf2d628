"""The arguments of `transduce presets`."""

from typing import Any

from transduce import strict
from transduce.doors.arguments import print_json, resolve
from transduce.errors import UsageError
from transduce.flags import Parser, add_settings
from transduce.presets import PRESETS, Preset, get


def presets(parser: Parser, argv: list[str]) -> None:
    """List the presets, or print one with a file and flags laid over it."""
    from transduce.config import Config
    from transduce.tables import print_table

    parser.add_argument("name", metavar="NAME", nargs="?", help="preset to print; without it, list them all")
    parser.add_argument(
        "--config", metavar="FILE", help="TOML file of settings that override the preset's; flags override both"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser, Config)
    given, flags = parser.parse(argv)
    if given.name:
        config = resolve(get(given.name).config, given.config, flags)
        print_json(strict.to_dict(config)) if given.json else print(strict.to_toml(config), end="")
    elif given.config or flags:
        raise UsageError("settings override those of a preset; name one, as in `transduce presets base …`")
    elif given.json:
        print_json([_preset_as_dict(preset) for preset in PRESETS.values()])
    else:
        header = ("name", "layers", "d_model", "d_ff", "heads", "d_k", "dropout", "parameters", "paper's", "summary")
        print_table(header, [_preset_row(preset) for preset in PRESETS.values()])


def _preset_as_dict(preset: Preset) -> dict[str, Any]:
    return strict.to_dict(preset) | {"parameters": preset.config.model.parameters()}


def _preset_row(preset: Preset) -> tuple[str, ...]:
    model = preset.config.model
    sizes = (model.layers, model.d_model, model.d_ff, model.heads, model.head_widths()[0], model.dropout)
    paper = f"{preset.paper_millions} M" if preset.paper_millions else ""
    return (preset.name, *map(str, sizes), f"{model.parameters() / 1e6:.1f} M", paper, preset.summary)
