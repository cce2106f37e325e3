// What stands beside the picture while nothing is selected: the method as a whole at the sizes chosen.

function overview(state) {
  const { method, point } = state;
  const parts = [element("h2", {}, method.name)];
  const link = (index, text = method.nodes[index].kind.label) => button(text, () => state.select(index));
  const problems = method.nodes.filter((node) => node.problem);
  if (problems.length || method.problems.length) {
    const shown = problems.slice(0, 50).map((node) => element("li", {}, link(node.index, node.label), `: ${node.problem}`));
    const others = method.problems.map((each) => element("li", {}, `${each.node}: ${each.reason}`));
    const count = problems.length + method.problems.length;
    parts.push(element("section", { className: "alarm" }, element("h3", {}, `${counted(count, "part")} cannot run`), element("ul", {}, shown, others)));
  }
  const host = method.nodes.filter((node) => node.host);
  if (host.length) {
    const shown = host.slice(0, 50).map((node) => element("li", {}, link(node.index, node.label), `: ${node.host}`));
    parts.push(element("section", { className: "alarm" }, element("h3", {}, `${counted(host.length, "node")} on the host`), element("ul", {}, shown)));
  }
  if (method.check) parts.push(checkSection(state, link));
  if (method.memory) parts.push(totals(state));
  parts.push(signature("Inputs", method, method.inputs, point), signature("Outputs", method, method.outputs, point));
  const what = method.profiles?.length ? "time" : "bytes";
  if (method.memory) parts.push(heaviest(state, what, link));
  if (method.fixed.length) parts.push(section("Kept at the bound", element("p", { className: "soft" }, method.fixed.join("; "))));
  return parts;
}

function totals(state) {
  const { method, point } = state;
  const sum = { read: 0, written: 0, operations: 0, dispatches: 0 };
  for (const node of method.nodes) {
    const record = method.record(node.index, point);
    sum.read += record.read;
    sum.written += record.written;
    sum.operations += record.operations;
    sum.dispatches += record.steps.length;
  }
  const profile = method.profiles?.[state.profile];
  const planned = [...method.byClass.keys()].length;
  const time = profile && `${timeText(profile.seconds / profile.turns)}${profile.turns > 1 ? " a token" : ""}, ${profile.name}`;
  return section("At these sizes", pairs([
    ["dispatches", state.refused ? "" : countText(sum.dispatches)],
    ["read", state.refused ? "" : bytesText(sum.read)],
    ["written", state.refused ? "" : bytesText(sum.written)],
    ["operations", state.refused ? "" : countText(sum.operations)],
    ["time", time],
    ["memory", `${bytesText(method.memory.total)}, whatever the sizes`],
    ["nodes", `${counted(method.count, "node")} of ${counted(planned, "class", "classes")}`],
  ]));
}

function signature(title, method, values, point) {
  const rows = values.map((value) => element("li", {},
    element("b", {}, method.values[value].name), " ", element("span", { className: "code" }, method.values[value].dtype ?? "number"), " ",
    element("span", { className: "code" }, method.shapeText(value)),
    method.moves(value) ? element("span", { className: "now" }, method.shapeAt(value, point)) : ""));
  return section(title, element("ul", { className: "values" }, rows));
}

// The classes that have most; a class is the same operator with the same arguments, however many nodes it has.
function heaviest(state, what, link) {
  const { method, point, profile } = state;
  const classes = [...method.byClass.values()].map((nodes) => {
    const measured = nodes.map((index) => method.measure(index, what, point, profile));
    const most = nodes[measured.indexOf(Math.max(...measured))];
    return { nodes, most, value: measured.reduce((sum, each) => sum + each, 0) };
  });
  const total = classes.reduce((sum, { value }) => sum + value, 0);
  const shown = classes.filter(({ value }) => value).sort((one, other) => other.value - one.value).slice(0, 8);
  const rows = shown.map(({ nodes, most, value }) => {
    const bar = element("i", { className: "meter" });
    bar.style.width = `${(100 * value) / shown[0].value}%`;
    return element("tr", {},
      element("td", {}, link(most), element("small", {}, nodes.length > 1 ? ` ×${nodes.length}` : ""), bar),
      element("td", { className: "number" }, measureText(what, value)),
      element("td", { className: "number soft" }, shareText(value, total)));
  });
  return section(`Most ${MEASURES[what]}, by class`, element("table", {}, element("tbody", {}, rows)));
}

function checkSection(state, link) {
  const { check, nodes } = state.method;
  const found = check.divergences.map((each) => {
    const names = each.places.length ? each.places.map((place) => [link(place, nodes[place].label), " "]).flat() : [`${each.node} `];
    return element("li", {}, names, `${each.kind}: ${each.reason}`);
  });
  const about = `${counted(check.checked, "node")} and ${check.fused} fused compared in ${counted(check.calls, "call")}; ${Object.keys(check.unknown).length} without a reference.`;
  if (check.right) return section("Check", element("p", {}, `No value differs. ${about}`));
  return element("section", { className: "alarm" }, element("h3", {}, `Check: ${counted(found.length, "divergence")}`), element("ul", {}, found), element("p", {}, about));
}
