// A card for each input: what it is filled with, at the live shape.

const SCALARS = ["int", "float", "bool"];

class InputCard {
  constructor(info, place, sizes) {
    Object.assign(this, { info, place, sizes });
    this.file = this.picture = null; // what was dropped: { name, tensor }, { name, bitmap }
    this.shapePlace = element("span", { className: "shape" });
    this.note = element("p", { className: "soft note" });
    this.fields = element("div", { className: "fields" });
    const title = element("h3", {}, info.name, " ", element("span", { className: "soft" }, info.dtype));
    const head = element("div", { className: "card-head" }, title, this.shapePlace);
    this.element = element("section", { className: "card", ariaLabel: info.name }, head, this.fields, this.note);
    if (SCALARS.includes(info.dtype)) this.makeScalar();
    else this.makeTensor();
    this.refresh();
  }

  makeScalar() {
    const { dtype } = this.info;
    const field = { type: "number", value: 0, step: dtype === "int" ? 1 : "any" };
    this.number = element("input", { ...(dtype === "bool" ? { type: "checkbox" } : field), ariaLabel: this.info.name });
    this.fields.append(this.number);
  }

  makeTensor() {
    const option = ([value, label]) => element("option", { value }, label);
    const kinds = { random: "Random", zeros: "Zeros", typed: "Numbers", file: "A .npy file", picture: "A picture" };
    if (!pictureLayout(this.info.bounds)) delete kinds.picture;
    this.kind = element("select", { ariaLabel: `Contents of ${this.info.name}` }, ...Object.entries(kinds).map(option));
    this.seed = element("input", { type: "number", value: this.place, min: 0, step: 1, ariaLabel: "Seed" });
    const rows = countOf(this.info.bounds) > 8 ? 3 : 1;
    this.text = element("textarea", { rows, ariaLabel: "Numbers", placeholder: "0.5, or as many as the shape has" });
    const scales = Object.entries(SCALES).map(([name, { label }]) => [name, label]);
    this.scale = element("select", { ariaLabel: "Values of the picture" }, ...scales.map(option));
    this.scale.hidden = !isFloat(this.info.dtype);
    this.preview = element("div", { className: "preview" });
    this.chooser = element("input", { type: "file", ariaLabel: `File for ${this.info.name}`, hidden: true });
    const choose = button("Choose a file", () => this.chooser.click(), { className: "plain" });
    this.panels = {
      random: element("label", {}, "Seed ", this.seed),
      zeros: element("span"),
      typed: this.text,
      file: element("span", {}, choose, " or drop it here"),
      picture: element("div", { className: "picture" }, this.scale, this.preview),
    };
    this.fields.append(this.kind, ...Object.values(this.panels), this.chooser);
    this.panels.picture.prepend(button("Choose a picture", () => this.chooser.click(), { className: "plain" }));
    this.kind.addEventListener("change", () => this.refresh());
    this.chooser.addEventListener("change", () => this.take(this.chooser.files[0]));
    this.element.addEventListener("dragover", (event) => {
      event.preventDefault();
      this.element.classList.add("over");
    });
    for (const type of ["dragleave", "drop"]) {
      this.element.addEventListener(type, () => this.element.classList.remove("over"));
    }
    this.element.addEventListener("drop", (event) => {
      event.preventDefault();
      this.take(event.dataTransfer.files[0]);
    });
  }

  get shape() {
    return shapeOf(this.info, this.place, this.sizes);
  }

  refresh() {
    this.shapePlace.textContent = this.kind ? shapeText(this.shape) : "";
    if (!this.kind) return;
    for (const [name, panel] of Object.entries(this.panels)) panel.hidden = name !== this.kind.value;
    this.note.textContent = { file: this.file?.name, picture: this.picture?.name }[this.kind.value] ?? "";
    this.chooser.accept = this.kind.value === "picture" ? "image/*" : ".npy";
  }

  // A file that was chosen or dropped; its shape moves the sliders.
  async take(file) {
    this.chooser.value = "";
    if (!file) return;
    try {
      if (file.name.toLowerCase().endsWith(".npy")) {
        const tensor = cast(readNpy(await file.arrayBuffer(), file.name), this.info.dtype);
        const [given, allowed] = [shapeText(tensor.shape), shapeText(this.info.bounds)];
        if (!fitSizes(this.info, this.place, this.sizes, tensor.shape)) {
          throw new Error(`${file.name} is ${given}; ${this.info.name} is up to ${allowed}`);
        }
        this.file = { name: `${file.name}: ${given}`, tensor };
        this.kind.value = "file";
      } else if (pictureLayout(this.info.bounds)) {
        const bitmap = await createImageBitmap(file);
        const size = `${bitmap.width} by ${bitmap.height}`;
        this.picture = { name: `${file.name}: ${size}, its middle scaled to the live size`, bitmap };
        this.kind.value = "picture";
        this.showPreview();
      } else {
        throw new Error(`${file.name}: this input takes a .npy file of numpy`);
      }
      this.refresh();
    } catch (error) {
      const undecoded = error.name === "InvalidStateError" || error.name === "EncodingError";
      this.note.textContent = undecoded ? `${file.name} is not a picture that this browser can read` : error.message;
    }
  }

  showPreview() {
    const { bitmap } = this.picture;
    const height = 96;
    const width = Math.max(1, Math.round((bitmap.width * height) / bitmap.height));
    const canvas = element("canvas", { height, width });
    canvas.getContext("2d").drawImage(bitmap, 0, 0, canvas.width, height);
    this.preview.replaceChildren(canvas);
  }

  // The input of a run: a tensor, or a number.
  value() {
    const { dtype, name } = this.info;
    if (this.number && dtype === "bool") return this.number.checked;
    try {
      return this.number ? typedScalar(dtype, this.number.value) : this.tensor(dtype, this.shape);
    } catch (error) {
      throw new Error(`${name}: ${error.message}`);
    }
  }

  tensor(dtype, shape) {
    const kind = this.kind.value;
    if (kind === "random") return randomTensor(dtype, shape, Number(this.seed.value));
    if (kind === "zeros") return tensorOf(dtype, shape, () => 0);
    if (kind === "typed") return typedTensor(dtype, shape, this.text.value);
    if (kind === "picture") {
      if (!this.picture) throw new Error("choose a picture, or drop one");
      return pictureTensor(this.picture.bitmap, dtype, shape, this.scale.value);
    }
    if (!this.file) throw new Error("choose a .npy file, or drop one");
    const { tensor } = this.file;
    const [given, wanted] = [shapeText(tensor.shape), shapeText(shape)];
    if (given !== wanted) throw new Error(`the file is ${given}, the sizes above say ${wanted}: move them back`);
    return tensor;
  }
}
