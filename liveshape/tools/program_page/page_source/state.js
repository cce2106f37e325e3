// What the reader chose: the method, the sizes, what is selected and how it is coloured. Views listen to it.

class State extends EventTarget {
  constructor(program) {
    super();
    this.program = program;
    this.methods = program.methods.map((each) => new Method(each));
    this.colour = this.methods.some((each) => each.profiles?.length) ? "time" : "operator";
    this.profile = 0;
    this.choose(0);
  }

  choose(place) {
    this.method = this.methods[place];
    // The bound of sizes, the first value of numbers.
    this.positions = this.method?.axes.map((axis) => (axis.kind === "size" ? axis.values.length - 1 : 0)) ?? [];
    this.selected = null;
    this.tell("method");
  }

  get point() {
    return this.method.point(this.positions);
  }

  get refused() {
    return this.method.refused[this.point] ?? "";
  }

  move(axis, position) {
    this.positions[axis] = position;
    this.tell("sizes");
  }

  // A leaf is a number, a fold is an object.
  select(what, origin = "") {
    this.selected = what;
    this.origin = origin;
    this.tell("selection");
  }

  paint(colour) {
    this.colour = colour;
    this.tell("colour");
  }

  tell(what) {
    this.dispatchEvent(new Event(what));
  }

  on(names, listener) {
    for (const name of names.split(" ")) this.addEventListener(name, listener);
    listener();
  }
}
