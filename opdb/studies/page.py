"""Rooflines as one HTML page: the figure with what each mark tells, groups that can be hidden.

The page holds all that it shows, some 100 kB, and loads nothing.
"""

from __future__ import annotations

import html
import json
import re

from opdb.studies.drawing import Drawing

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 14px/1.4 system-ui, sans-serif; color: #333; margin: 1rem auto; max-width: 1000px }}
svg {{ width: 100%; height: auto }}
svg [data-mark] {{ cursor: pointer }}
svg [data-mark]:hover path, svg [data-mark]:hover use, .same path, .same use {{
  stroke: #000 !important; stroke-width: 2 !important }}
.off {{ display: none }}
#kinds label {{ margin-right: 1em; white-space: nowrap }}
#told {{ position: fixed; display: none; max-width: 30rem; background: #fff; padding: .5em .8em;
  border: 1px solid #999; border-radius: 4px; box-shadow: 0 2px 8px #0003; pointer-events: none }}
#told b {{ display: block }}
#told span {{ color: #777 }}
</style></head><body>
<p>Point at a mark to see what it is. Shown: <span id="kinds"></span></p>
{svg}
<div id="told" role="status"></div>
<script type="application/json" id="marks">{marks}</script>
<script>
"use strict";
const marks = JSON.parse(document.getElementById("marks").textContent);
const told = document.getElementById("told"), kinds = document.getElementById("kinds");
const twin = id => id.replace(/^(time|energy)/, w => w === "time" ? "energy" : "time");
const groups = new Map();
for (const [id, lines] of Object.entries(marks)) {{
  const mark = document.getElementById(id);
  if (!mark) continue;
  mark.dataset.mark = id;
  const group = lines.group;
  groups.set(group, [...(groups.get(group) || []), mark]);
  const light = on => document.getElementById(twin(id))?.classList.toggle("same", on);
  mark.addEventListener("mouseenter", () => {{
    told.replaceChildren(...Object.entries(lines).filter(([name]) => name !== "group").map(
      ([name, text]) => {{
        const line = document.createElement(name ? "div" : "b");
        if (name) {{
          const label = document.createElement("span");
          label.textContent = name + ": ";
          line.append(label);
        }}
        line.append(text);
        return line;
      }}));
    told.style.display = "block";
    light(true);
  }});
  mark.addEventListener("mousemove", event => {{
    const right = event.clientX + 16 + told.offsetWidth > innerWidth;
    const low = event.clientY + 16 + told.offsetHeight > innerHeight;
    told.style.left = event.clientX + (right ? -16 - told.offsetWidth : 16) + "px";
    told.style.top = event.clientY + (low ? -16 - told.offsetHeight : 16) + "px";
  }});
  mark.addEventListener("mouseleave", () => {{ told.style.display = "none"; light(false); }});
}}
for (const [group, members] of groups) {{
  const label = document.createElement("label"), box = document.createElement("input");
  box.type = "checkbox";
  box.checked = true;
  box.addEventListener("change", () =>
    members.forEach(mark => mark.classList.toggle("off", !box.checked)));
  label.append(box, " " + group);
  kinds.append(label);
}}
</script></body></html>
"""


def page(drawing: Drawing, title: str) -> str:
    """Return an HTML page of a drawing."""
    svg = drawing.svg[drawing.svg.index("<svg") :]
    svg = re.sub(r'(<svg\b[^>]*?) width="[^"]*" height="[^"]*"|(<svg\b)', _sizeless, svg, count=1)
    # no text in the data can end the element that holds it
    marks = json.dumps(drawing.marks).replace("<", "\\u003c")
    return _PAGE.format(title=html.escape(title), svg=svg, marks=marks)


def _sizeless(found: re.Match[str]) -> str:
    return found[1] or found[2]
