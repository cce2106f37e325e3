// Pictures as tensors, and tensors as pictures.

const MEAN = [0.485, 0.456, 0.406]; // of ImageNet's pictures, by channel
const DEVIATION = [0.229, 0.224, 0.225];

// How the numbers of a picture, from 0 to 1, go into a tensor.
const SCALES = {
  unit: { label: "0 to 1", of: (value) => value },
  imagenet: {
    label: "ImageNet's mean and deviation",
    of: (value, channel) => (value - MEAN[channel]) / DEVIATION[channel],
  },
  signed: { label: "-1 to 1", of: (value) => 2 * value - 1 },
  bytes: { label: "0 to 255", of: (value) => Math.round(255 * value) },
};

// Where a tensor has its rows, columns and colours: (N, 3, H, W) or (N, H, W, 3), else null.
function pictureLayout(shape) {
  if (shape.length !== 4) return null;
  const [count, second, third, last] = shape;
  if (second === 3) return { count, height: third, width: last, colours: "first" };
  if (last === 3) return { count, height: second, width: third, colours: "last" };
  return null;
}

// The part of the picture that fills the size is scaled to it; the same for every picture of a batch.
function pictureTensor(picture, dtype, shape, scale) {
  const { height, width, colours } = pictureLayout(shape);
  const canvas = element("canvas", { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  const factor = Math.max(width / picture.width, height / picture.height);
  const [across, down] = [picture.width * factor, picture.height * factor];
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, (width - across) / 2, (height - down) / 2, across, down);
  const { data } = context.getImageData(0, 0, width, height);
  const area = width * height;
  const { of } = SCALES[isFloat(dtype) ? scale : "bytes"];
  return tensorOf(dtype, shape, (place) => {
    const within = place % (3 * area);
    const first = colours === "first";
    const channel = first ? Math.floor(within / area) : within % 3;
    const pixel = first ? within % area : Math.floor(within / 3);
    return of(data[4 * pixel + channel] / 255, channel);
  });
}

// Whether a tensor is one picture, of one colour or three: (1, H, W) or (3, H, W), also below sizes of 1.
function pictureOf(shape) {
  const sizes = shape.slice();
  while (sizes.length > 3 && sizes[0] === 1) sizes.shift();
  const [channels, height, width] = sizes;
  const isPicture = sizes.length === 3 && [1, 3].includes(channels) && height > 1 && width > 1;
  return isPicture ? { channels, height, width } : null;
}

// Numbers from 0 to 1 as they are, all others stretched from the least to the largest.
function drawPicture({ data, shape }, { min, max }) {
  const { channels, height, width } = pictureOf(shape);
  const ariaLabel = `Output as a picture of ${width} by ${height}`;
  const canvas = element("canvas", { width, height, role: "img", ariaLabel });
  const [low, high] = min >= 0 && max <= 1 ? [0, 1] : [min, max];
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  const area = width * height;
  for (let pixel = 0; pixel < area; pixel++) {
    for (let channel = 0; channel < 3; channel++) {
      const value = Number(data[pixel + (channels === 3 ? channel * area : 0)]);
      image.data[4 * pixel + channel] = (255 * (value - low)) / (high - low || 1);
    }
    image.data[4 * pixel + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
