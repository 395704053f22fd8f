// The playground: an involution in the plane, and a learned proposal on mog6.
// The mathematics (Maths, below) needs no browser; tests/test_playground.py runs it in Node.

const Maths = {
  // z ↦ z - 2 v (w·z) / (v·w)
  matrixBlock(v, w, z) {
    const inner = v[0] * w[0] + v[1] * w[1];
    const share = (2 * (w[0] * z[0] + w[1] * z[1])) / inner;
    return [z[0] - share * v[0], z[1] - share * v[1]];
  },
  permutationBlock(sigma, z) {
    return sigma.map((i) => z[i]);
  },
  // outer ∘ inner ∘ outer, with the permutation outside
  sandwich(sigma, v, w, z) {
    const inner = Maths.matrixBlock(v, w, Maths.permutationBlock(sigma, z));
    return Maths.permutationBlock(sigma, inner);
  },
  logSumExp(values) {
    const top = Math.max(...values);
    return top + Math.log(values.reduce((sum, value) => sum + Math.exp(value - top), 0));
  },
  // mog6, up to a constant
  logDensity(numbers, x) {
    const { means, sd } = numbers.target;
    return Maths.logSumExp(means.map((m) =>
      -Math.log(means.length) - (0.5 * ((x[0] - m[0]) ** 2 + (x[1] - m[1]) ** 2)) / sd ** 2));
  },
  // π = L⁻¹(x - m), and x = L π + m, for a lower triangular L
  whiten(numbers, x) {
    const { mean, factor: L } = numbers.whitening;
    const first = (x[0] - mean[0]) / L[0][0];
    return [first, (x[1] - mean[1] - L[1][0] * first) / L[1][1]];
  },
  colour(numbers, p) {
    const { mean, factor: L } = numbers.whitening;
    return [L[0][0] * p[0] + mean[0], L[1][0] * p[0] + L[1][1] * p[1] + mean[1]];
  },
  // log of the mixture Y, each component with lower triangular A: |A| N(A(x - μ); 0, I)
  logAuxiliary(numbers, p) {
    const { weights, means, factors } = numbers.mixture;
    return Maths.logSumExp(weights.map((weight, k) => {
      const A = factors[k], d = [p[0] - means[k][0], p[1] - means[k][1]];
      const u = [A[0][0] * d[0], A[1][0] * d[0] + A[1][1] * d[1]];
      return Math.log(weight) + Math.log(A[0][0] * A[1][1]) - Math.log(2 * Math.PI)
        - 0.5 * (u[0] ** 2 + u[1] ** 2);
    }));
  },
  drawAuxiliary(numbers, random) {
    const { weights, means, factors } = numbers.mixture;
    let share = random(), k = 0;
    while (k < weights.length - 1 && share > weights[k]) share -= weights[k++];
    const A = factors[k], n = Maths.normals(random);
    const first = n[0] / A[0][0];
    return [means[k][0] + first, means[k][1] + (n[1] - A[1][0] * first) / A[1][1]];
  },
  normals(random) {
    const radius = Math.sqrt(-2 * Math.log(1 - random())), turn = 2 * Math.PI * random();
    return [radius * Math.cos(turn), radius * Math.sin(turn)];
  },
  // f(φ, π) = (g⁻¹(π), g(φ)) with the log acceptance ratio; |det Df| = 1 since g is affine
  propose(numbers, x, p) {
    const there = Maths.colour(numbers, p), back = Maths.whiten(numbers, x);
    const logRatio = Maths.logDensity(numbers, there) - Maths.logDensity(numbers, x)
      + Maths.logAuxiliary(numbers, back) - Maths.logAuxiliary(numbers, p);
    return { position: there, auxiliary: back, logRatio };
  },
  step(numbers, x, random) {
    const move = Maths.propose(numbers, x, Maths.drawAuxiliary(numbers, random));
    const accepted = Math.log(random()) < move.logRatio;
    return { x: accepted ? move.position : x, proposal: move.position, accepted };
  },
  // a random walk of the given step, for comparison
  walk(numbers, x, size, random) {
    const n = Maths.normals(random), there = [x[0] + size * n[0], x[1] + size * n[1]];
    const ratio = Maths.logDensity(numbers, there) - Maths.logDensity(numbers, x);
    const accepted = Math.log(random()) < ratio;
    return { x: accepted ? there : x, proposal: there, accepted };
  },
};

if (typeof module !== "undefined") module.exports = Maths;

// ── The page ──────────────────────────────────────────────────────────────────────────────────

const WIDE = 4; // half the width of the plane that is drawn

function plane(canvas, half) {
  const scale = canvas.width / (2 * half);
  const pen = canvas.getContext("2d");
  const at = ([x, y]) => [(x + half) * scale, (half - y) * scale];
  const from = (event) => {
    const box = canvas.getBoundingClientRect();
    const size = (2 * half) / box.width;
    return [(event.clientX - box.left) * size - half, half - (event.clientY - box.top) * size];
  };
  const dot = (z, radius, colour) => {
    pen.fillStyle = colour;
    pen.beginPath();
    pen.arc(...at(z), radius, 0, 2 * Math.PI);
    pen.fill();
  };
  const line = (a, b, colour, width = 1) => {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.beginPath();
    pen.moveTo(...at(a));
    pen.lineTo(...at(b));
    pen.stroke();
  };
  return { pen, at, from, dot, line, clear: () => pen.clearRect(0, 0, canvas.width, canvas.height) };
}

const BLUE = "#2a78c8", RED = "#c8502a", GREY = "#8a8a8a";

function involutionPart() {
  const $ = (id) => document.getElementById(id);
  const canvas = $("pg-plane"), view = plane(canvas, WIDE);
  let point = [1.5, 2];
  const grid = [];
  for (let x = -3.5; x <= 3.5; x += 1) for (let y = -3.5; y <= 3.5; y += 1) grid.push([x, y]);

  function draw() {
    const turn = (id) => ($(id).value * Math.PI) / 180;
    const v = [Math.cos(turn("pg-v")), Math.sin(turn("pg-v"))];
    const w = [Math.cos(turn("pg-w")), Math.sin(turn("pg-w"))];
    const swaps = $("pg-sigma").value === "1", sigma = swaps ? [1, 0] : [0, 1];
    const cosine = v[0] * w[0] + v[1] * w[1];
    $("pg-v-out").value = `${$("pg-v").value}°`;
    $("pg-w-out").value = `${$("pg-w").value}°`;
    $("pg-sigma-out").value = swaps ? "swaps φ and π" : "leaves φ and π";
    view.clear();
    view.line([-WIDE, 0], [WIDE, 0], GREY, 0.6);
    view.line([0, -WIDE], [0, WIDE], GREY, 0.6);
    if (Math.abs(cosine) < 0.05) {
      $("pg-said").textContent = "v and w are orthogonal: v·w = 0, and the block does not exist.";
      return;
    }
    const f = (z) => Maths.sandwich(sigma, v, w, z);
    for (const z of grid) view.line(z, f(z), "rgba(138,138,138,0.55)", 1);
    for (const z of grid) view.dot(z, 3, GREY);
    const there = f(point), back = f(there);
    view.line(point, there, BLUE, 2);
    view.dot(there, 7, RED);
    view.dot(point, 7, BLUE);
    const error = Math.hypot(back[0] - point[0], back[1] - point[1]);
    const show = (z) => `(${z[0].toFixed(2)}, ${z[1].toFixed(2)})`;
    $("pg-said").textContent =
      `z = ${show(point)}, f(z) = ${show(there)}, |f(f(z)) - z| = ${error.toExponential(0)}, det = -1`;
  }
  const drag = (event) => {
    if (event.buttons || event.type === "pointerdown") {
      point = view.from(event);
      draw();
    }
  };
  canvas.addEventListener("pointerdown", drag);
  canvas.addEventListener("pointermove", drag);
  canvas.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] };
    if (!(event.key in by)) return;
    point = [point[0] + by[event.key][0], point[1] + by[event.key][1]];
    event.preventDefault();
    draw();
  });
  for (const id of ["pg-v", "pg-w", "pg-sigma"]) $(id).addEventListener("input", draw);
  draw();
}

function chainPart(numbers) {
  const $ = (id) => document.getElementById(id);
  const canvas = $("pg-chain"), half = 7, view = plane(canvas, half);
  let x, draws, moved, counts;

  function background() {
    view.clear();
    const size = 70, cell = canvas.width / size;
    for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) {
      const z = [((i + 0.5) / size) * 2 * half - half, half - ((j + 0.5) / size) * 2 * half];
      const strength = Math.exp(Maths.logDensity(numbers, z) + Math.log(numbers.target.means.length));
      if (strength < 0.01) continue;
      view.pen.fillStyle = `rgba(138,138,138,${0.55 * strength})`;
      view.pen.fillRect(i * cell, j * cell, cell + 0.5, cell + 0.5);
    }
  }
  function reset() {
    x = [...numbers.target.means[0]];
    draws = 0;
    moved = 0;
    counts = numbers.target.means.map(() => 0);
    background();
    view.dot(x, 6, RED);
    say("One chain, at the mode on the right.");
  }
  function advance(steps) {
    const learned = $("pg-kernel").value === "learned";
    background();
    let last = x, result;
    for (let i = 0; i < steps; i++) {
      last = x;
      result = learned ? Maths.step(numbers, x, Math.random) : Maths.walk(numbers, x, 0.5, Math.random);
      x = result.x;
      draws += 1;
      moved += result.accepted ? 1 : 0;
      const apart = numbers.target.means.map((m) => Math.hypot(x[0] - m[0], x[1] - m[1]));
      counts[apart.indexOf(Math.min(...apart))] += 1;
      if (steps > 1) view.dot(x, 2, "rgba(42,120,200,0.45)");
    }
    if (steps === 1) view.line(last, result.proposal, result.accepted ? BLUE : GREY, 2);
    view.dot(x, 6, RED);
    const visited = counts.filter((count) => count > 0).length;
    const one = result.accepted ? "accepted" : "rejected";
    say(`${draws} steps, ${((100 * moved) / draws).toFixed(0)} % accepted, ${visited} of 6 modes visited`
      + (steps === 1 ? `; the last proposal was ${one}.` : "."));
    $("pg-weights").textContent = counts.map((c) => (c / draws).toFixed(3)).join("  ");
  }
  const say = (text) => {
    $("pg-chain-said").textContent = text;
  };
  $("pg-one").addEventListener("click", () => advance(1));
  $("pg-thousand").addEventListener("click", () => advance(1000));
  $("pg-reset").addEventListener("click", reset);
  $("pg-kernel").addEventListener("change", reset);
  reset();
}

if (typeof document !== "undefined") {
  document.addEventListener("DOMContentLoaded", () => {
    if (!document.getElementById("pg-plane")) return;
    involutionPart();
    chainPart(PLAYGROUND);
  });
}
