"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("lanes"), pen = canvas.getContext("2d");
  const told = document.getElementById("told"), tip = document.getElementById("tip");
  const LANE = 40, GAP = 22, TOP = 26, BOTTOM = 30, MOST_LINES = 500;
  const count = data.parties.length, height = TOP + count * (LANE + GAP) + BOTTOM;
  const all = data.seconds > 0 ? data.seconds : 1;
  let from = 0, to = all, wide = 0, gutter = 120;

  // Entries by party and lane, sorted by their start, with the furthest end so far: what begins before the window ends and
  // has an entry up to it that reaches into the window is found by two searches.
  const sorted = (entries, start, end) => {
    entries.sort((a, b) => a[start] - b[start]);
    let furthest = -Infinity;
    return { entries, start, end, reach: entries.map(e => (furthest = Math.max(furthest, e[end] ?? e[start]))) };
  };
  const first = (numbers, value, of) => {
    let low = 0, high = numbers.length;
    while (low < high) { const middle = (low + high) >> 1; if (of(numbers[middle]) < value) low = middle + 1; else high = middle; }
    return low;
  };
  const within = (list, a, b) => {
    const low = first(list.reach, a, v => v), high = first(list.entries, b, e => e[list.start]);
    return [low, Math.max(low, high)];
  };
  const work = data.parties.map((_, party) =>
    [0, 1].map(lane => sorted(data.work.filter(e => e[0] === party && e[1] === lane), 2, 3)));
  const waits = data.parties.map((_, party) => sorted(data.waits.filter(e => e[0] === party), 3, 4));
  const messages = sorted(data.messages, 4, 5);

  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const x = second => gutter + (wide - gutter - 12) * (second - from) / (to - from);
  const second = px => from + (px - gutter) / (wide - gutter - 12) * (to - from);
  const middle = party => TOP + party * (LANE + GAP) + LANE / 2;
  const short = s => {
    if (!s) return "0";
    for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["µs", 1e-6]])
      if (Math.abs(s) >= size || unit === "µs") return Number((s / size).toPrecision(4)) + " " + unit;
  };
  const nice = (low, high, most) => {
    const span = high - low, power = 10 ** Math.floor(Math.log10(span / most));
    const step = [1, 2, 5, 10, 20].map(k => k * power).find(k => span / k <= most), found = [];
    for (let k = Math.ceil(low / step); k * step <= high + step * 1e-9; k++) found.push(k * step);
    return found;
  };

  function bars(list, y, tall, fill) {
    const [low, high] = within(list, from, to), pixels = new Float64Array(wide + 2);
    for (let k = low; k < high; k++) {
      const e = list.entries[k];
      const a = Math.max(gutter, x(e[list.start])), b = Math.min(wide - 12, x(e[list.end]));
      if (b <= a) continue;
      const i = Math.floor(a), j = Math.floor(b);
      if (i === j) pixels[i] += b - a;
      else { pixels[i] += i + 1 - a; for (let p = i + 1; p < j; p++) pixels[p] = 1; pixels[j] += b - j; }
    }
    pen.fillStyle = fill;
    for (let p = 0; p < pixels.length; p++)
      if (pixels[p] > 0) { pen.globalAlpha = Math.min(1, 0.25 + 0.75 * pixels[p]); pen.fillRect(p, y, 1, tall); }
    pen.globalAlpha = 1;
  }

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    wide = canvas.clientWidth;
    gutter = wide < 600 ? 76 : 120;
    canvas.width = wide * ratio; canvas.height = height * ratio; canvas.style.height = height + "px";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, wide, height);
    pen.font = "12px system-ui, sans-serif"; pen.textBaseline = "middle";
    const ink = colour("ink"), quiet = colour("quiet"), edge = colour("edge"), soft = colour("soft"), bad = colour("bad");
    for (const tick of nice(from, to, wide < 600 ? 4 : 8)) {
      pen.strokeStyle = colour("grid"); line(x(tick), TOP - 4, x(tick), height - BOTTOM);
      pen.fillStyle = quiet; pen.textAlign = "center"; pen.fillText(short(tick), x(tick), height - BOTTOM / 2);
    }
    pen.textAlign = "left";
    let last = -Infinity;
    for (const [at, epoch] of data.marks) {
      if (at < from || at > to) continue;
      pen.strokeStyle = edge; pen.setLineDash([3, 3]); line(x(at), TOP - 8, x(at), height - BOTTOM); pen.setLineDash([]);
      if (x(at) - last > 26) { pen.fillStyle = quiet; pen.fillText(String(epoch), x(at) + 3, 10); last = x(at); }
    }
    data.parties.forEach((name, party) => {
      const y = middle(party) - LANE / 2, end = Math.min(wide - 12, x(data.ends[party]));
      pen.fillStyle = soft;
      if (end > gutter) { pen.beginPath(); pen.roundRect(gutter, y, end - gutter, LANE, 4); pen.fill(); }
      bars(work[party][0], y + 4, LANE / 2 - 6, colour("s1"));
      bars(work[party][1], y + LANE / 2 + 2, LANE / 2 - 6, colour("s2"));
      pen.fillStyle = colour("card"); pen.fillRect(0, y - 4, gutter - 2, LANE + 8);
      pen.fillStyle = ink; pen.save(); pen.beginPath(); pen.rect(8, y, gutter - 16, LANE); pen.clip();
      pen.fillText(name, 12, y + LANE / 2); pen.restore();
    });
    pen.save(); pen.beginPath(); pen.rect(gutter, 0, wide - gutter, height); pen.clip();
    const [low, high] = within(messages, from, to), many = high - low > MOST_LINES;
    for (let k = low; k < high; k++) {
      const [frm, rcv, , , sent, arrived] = messages.entries[k];
      if (arrived === null) {
        if (sent < from) continue;
        const a = middle(frm), y = a + (middle(rcv) - a) * 0.35, px = x(sent) + 6;
        pen.strokeStyle = bad; pen.lineWidth = 1.5; line(x(sent), a, px, y);
        line(px - 4, y - 4, px + 4, y + 4); line(px - 4, y + 4, px + 4, y - 4); pen.lineWidth = 1;
      } else if (!many) {
        pen.strokeStyle = quiet; pen.globalAlpha = 0.55; line(x(sent), middle(frm), x(arrived), middle(rcv)); pen.globalAlpha = 1;
      }
    }
    pen.restore();
    told.textContent = short(from) + " to " + short(to) + (many ? "; zoom in to see messages" : "");
  }
  function line(a, b, c, d) { pen.beginPath(); pen.moveTo(a, b); pen.lineTo(c, d); pen.stroke(); }

  let asked = false;
  const redraw = () => { if (!asked) { asked = true; requestAnimationFrame(() => { asked = false; draw(); }); } };
  function show(a, b) {
    const span = Math.min(all, Math.max(all * 1e-7, b - a));
    from = Math.min(Math.max(0, a), all - span); to = from + span; redraw();
  }
  const zoom = (factor, at) => show(at - (at - from) * factor, at + (to - at) * factor);

  canvas.addEventListener("wheel", event => {
    event.preventDefault();
    zoom(Math.exp(event.deltaY * 0.0015), second(Math.max(gutter, event.offsetX)));
  }, { passive: false });
  let grip = null;
  canvas.addEventListener("pointerdown", event => { grip = [event.offsetX, from, to]; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", () => { grip = null; });
  canvas.addEventListener("pointermove", event => {
    if (grip) {
      const moved = (grip[0] - event.offsetX) / (wide - gutter - 12) * (grip[2] - grip[1]);
      show(grip[1] + moved, grip[2] + moved); tip.hidden = true;
    } else hint(event.offsetX, event.offsetY);
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("keydown", event => {
    const span = to - from, centre = (from + to) / 2;
    const does = {
      "+": () => zoom(0.5, centre), "=": () => zoom(0.5, centre), "-": () => zoom(2, centre), "0": () => show(0, all),
      ArrowLeft: () => show(from - span / 4, to - span / 4), ArrowRight: () => show(from + span / 4, to + span / 4),
    }[event.key];
    if (does) { event.preventDefault(); does(); }
  });
  document.getElementById("in").addEventListener("click", () => zoom(0.5, (from + to) / 2));
  document.getElementById("out").addEventListener("click", () => zoom(2, (from + to) / 2));
  document.getElementById("all").addEventListener("click", () => show(0, all));
  window.addEventListener("resize", redraw);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

  function hint(px, py) {
    const at = second(px), party = Math.floor((py - TOP + GAP / 2) / (LANE + GAP)), near = (to - from) / wide * 3;
    let words = "";
    const close = messages.entries.slice(...within(messages, at - near, at + near));
    if (close.length && close.length < MOST_LINES)
      for (const [frm, rcv, step, bytes, sent, arrived] of close) {
        if (arrived === null) { if (Math.abs(x(sent) - px) < 10 && Math.abs(middle(frm) - py) < LANE) words = said(frm, rcv, step, bytes) + ", lost"; continue; }
        const part = (at - sent) / (arrived - sent || 1e-12);
        if (part >= -0.05 && part <= 1.05 && Math.abs(middle(frm) + (middle(rcv) - middle(frm)) * part - py) < 5)
          words = said(frm, rcv, step, bytes) + ", " + short(arrived - sent) + " on the way";
      }
    if (!words && party >= 0 && party < count && px > gutter) {
      const lane = py > middle(party) ? 1 : 0, list = work[party][lane];
      const [a, b] = within(list, at - near, at + near), busy = list.entries.slice(a, Math.min(b, a + 500)).find(e => e[2] <= at + near && e[3] >= at - near);
      if (busy) words = data.parties[party] + (lane ? " updates for " : " contributes for ") + short(busy[3] - busy[2]);
      else {
        const [c, d] = within(waits[party], at, at + near), idle = waits[party].entries.slice(c, Math.min(d, c + 500)).filter(e => e[3] <= at && e[4] >= at);
        if (idle.length) words = data.parties[party] + " waits for " + idle.slice(0, 3).map(e => data.parties[e[1]] + " (" + data.steps[e[2]] + ")").join(", ");
      }
    }
    tip.hidden = !words; tip.textContent = words;
    tip.style.left = Math.max(4, Math.min(px + 12, wide - 310)) + "px"; tip.style.top = py + 52 + "px";
  }
  const said = (frm, rcv, step, bytes) =>
    data.steps[step] + ": " + data.parties[frm] + " to " + data.parties[rcv] + ", " + bytes.toLocaleString("en") + " bytes";
  draw();
})();
