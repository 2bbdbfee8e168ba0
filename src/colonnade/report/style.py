"""How the page looks: two palettes, for light and dark, and one style sheet for phones, screens and paper.

Every colour of the page is a token of the palettes below, so that a test can hold each letter's against its background.
"""

from __future__ import annotations

from colonnade.conventions.palette import DARK, LIGHT, variables

# Which letters stand on which backgrounds; tests/test_report_page.py holds each pair against WCAG's 4.5 to 1.
LETTERS = (
    *((letter, ground) for letter in ("ink", "quiet") for ground in ("page", "card", "soft", "tint")),
    *((letter, "card") for letter in ("good", "bad", "s1", "s2", "s3", "s4")),
)

_RULES = """
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%;color-scheme:light dark}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"Helvetica Neue",Arial,sans-serif;font-variant-numeric:tabular-nums}
main,header.top,footer{max-width:1240px;margin:0 auto;padding:0 16px}
header.top{padding-top:28px}
h1{font-size:26px;line-height:1.2;margin:0 0 4px;overflow-wrap:anywhere}
h2{font-size:19px;margin:36px 0 4px;padding-top:14px;border-top:1px solid var(--edge)}
h3{font-size:15px;margin:0 0 2px;overflow-wrap:anywhere}
p{margin:6px 0 12px;max-width:76ch}
a{color:var(--s1)}
.quiet,figcaption,.note{color:var(--quiet)}
.lead{color:var(--quiet);margin:0 0 14px;max-width:none;overflow-wrap:anywhere}
nav{display:flex;flex-wrap:wrap;gap:4px 14px;font-size:14px;margin:10px 0}
.tiles{display:grid;grid-template-columns:repeat(4,1fr);gap:12px;margin:14px 0}
.tile,.card{background:var(--card);border:1px solid var(--edge);border-radius:10px}
.tile{padding:12px 14px}
.tile b{display:block;font-size:24px;line-height:1.25;overflow-wrap:anywhere}
.tile span{display:block;color:var(--quiet);font-size:13px}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(340px,100%),1fr));gap:14px;align-items:start}
.card{margin:0;padding:14px;min-width:0}
.wide{grid-column:1/-1}
.rest{grid-column:span 2}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
figure{margin:0}
figcaption{font-size:13px;margin:0 0 8px}
.badge{display:inline-block;font-size:12px;line-height:1.5;padding:0 8px;border-radius:9px;background:var(--tint);
color:var(--ink);white-space:nowrap;margin:0 0 4px}
.badge.in{background:var(--soft)}
svg{display:block;width:100%;height:auto;max-width:520px;margin:0 auto}
svg text{font:11px system-ui,-apple-system,"Segoe UI",Roboto,Arial,sans-serif;fill:var(--quiet)}
svg text.label{fill:var(--ink)}
svg line.grid{stroke:var(--grid);stroke-width:1}
.line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.guide{stroke:var(--quiet);stroke-width:1;stroke-dasharray:4 4}
.whisker{stroke-width:1.6}
.cloud{fill:none;stroke-width:2.4;stroke-linecap:round;stroke-opacity:.45}
.line.s1,.whisker.s1,.cloud.s1{stroke:var(--s1)}.fill.s1{fill:var(--s1)}
.line.s2,.whisker.s2,.cloud.s2{stroke:var(--s2)}.fill.s2{fill:var(--s2)}
.line.s3,.whisker.s3,.cloud.s3{stroke:var(--s3)}.fill.s3{fill:var(--s3)}
.line.s4,.whisker.s4,.cloud.s4{stroke:var(--s4)}.fill.s4{fill:var(--s4)}
.line.quiet,.whisker.quiet{stroke:var(--quiet)}.fill.quiet{fill:var(--quiet)}
.fill.see{fill-opacity:.55}
.scroll{overflow-x:auto;margin:8px 0 0}
table{border-collapse:collapse;font-size:13px;width:100%}
th,td{padding:4px 8px;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th{font-weight:600;color:var(--quiet);text-align:right}
th:first-child,td:first-child{text-align:left;padding-left:2px}
th.long,td.long{white-space:normal;overflow-wrap:anywhere;min-width:6em;text-align:left}
tbody th{font-weight:400;color:var(--ink)}
.matrix thead th{text-align:center}
.matrix td{text-align:center;border:1px solid var(--edge);font-size:14px;white-space:normal}
.matrix td b{display:block;font-size:18px}
.matrix .right{background:var(--tint)}
details{margin-top:8px;font-size:13px}
summary{cursor:pointer;color:var(--s1)}
ul{margin:6px 0 12px;padding-left:20px;max-width:90ch}
li{margin:3px 0;overflow-wrap:anywhere}
.good{color:var(--good)}.bad{color:var(--bad)}
footer{color:var(--quiet);font-size:13px;padding-top:20px;padding-bottom:32px}
@media (max-width:1130px){.rest{grid-column:1/-1}}
@media (max-width:780px){th,td{padding:4px 5px}thead th{white-space:normal}table{font-size:12.5px}
.tiles{grid-template-columns:repeat(2,1fr)}body{font-size:16px}h1{font-size:22px}}
@media print{
body{background:#fff;font-size:11px}main,header.top,footer{max-width:none;padding:0}nav{display:none}
.grid{grid-template-columns:repeat(2,1fr)}.card,.tile{break-inside:avoid;border-color:#bbb}h2,h3{break-after:avoid}
.tiles{grid-template-columns:repeat(4,1fr)}.scroll{overflow:visible}th,td{white-space:normal;padding:2px 4px}
details::details-content{content-visibility:visible;block-size:auto}
summary{display:none}tr{break-inside:avoid}svg{max-width:330px}
@page{margin:14mm}
}
"""


def style_sheet() -> str:
    """Return the page's style: light by default and on paper, dark where the reader's system is."""
    dark = f"@media screen and (prefers-color-scheme:dark){{:root{{{variables(DARK)}}}}}"
    return f":root{{{variables(LIGHT)}}}{dark}{_RULES}"
