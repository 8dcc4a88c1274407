// Dialogs, refreshing, plots, and links from Airflow's frame to Airflow's own pages.

const { base, airflow } = document.documentElement.dataset;
const PAGE = 100; // tasks that Airflow is asked for at once
const HEADER = "X-Reliability"; // of what the page asks, and of what it is answered
const HEADERS = { [HEADER]: "page", Accept: "text/html" };

// --- refreshing ----------------------------------------------------------------------------------
// Parts marked with data-refresh (seconds) are read again, unless somebody is using a dialog or the
// page is not seen.

function refreshed() {
  return [...document.querySelectorAll("[data-refresh]")];
}

async function refresh() {
  const parts = refreshed();
  if (!parts.length) return;
  const seconds = Math.min(...parts.map((part) => Number(part.dataset.refresh)));
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  if (!document.hidden && !isInUse()) await replaceParts();
  refresh();
}

function isInUse() {
  const isTyping = document.activeElement?.matches("input, select, textarea") ?? false;
  return isTyping || document.querySelector("dialog[open], [aria-busy]") !== null;
}

async function replaceParts() {
  let fresh;
  try {
    const response = await fetch(location.href, { headers: { Accept: "text/html" } });
    fresh = parsed(await response.text());
    if (!response.ok || !fresh.querySelector("#main")) throw new Error(`it was answered with ${response.status}`);
  } catch (error) { // Airflow restarts, or the login has ended; the next time may do
    sayThatItIsOld(error.message);
    return;
  }
  if (isInUse()) return; // since it was asked
  document.querySelector("#old")?.remove();
  const focused = document.activeElement?.getAttribute?.("href");
  const old = refreshed();
  const news = [...fresh.querySelectorAll("[data-refresh], .do-it")];
  if (news.length !== old.length || news.some((part) => part.matches(".do-it"))) {
    document.querySelector("#main").replaceWith(fresh.querySelector("#main"));
    prepare();
  } else {
    old.forEach((part, place) => {
      if (part.innerHTML !== news[place].innerHTML) part.innerHTML = news[place].innerHTML;
    });
  }
  if (focused && document.activeElement === document.body) {
    document.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }
  scrollers();
}

function sayThatItIsOld(why) {
  if (document.querySelector("#old")) return;
  const text = `Since ${new Date().toISOString().slice(11, 19)} UTC this page has not been refreshed: ${why}. If that stays so, reload it.`;
  document.querySelector("#main").insertAdjacentHTML("afterbegin", `<div id="old">${errorNote(text)}</div>`);
}

// --- dialogs and changes -------------------------------------------------------------------------

document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-opens]");
  if (opener) {
    document.getElementById(opener.dataset.opens).showModal();
    return;
  }
  const link = event.target.closest("a[data-airflow-link]");
  if (link && window.parent !== window) {
    event.preventDefault();
    leaveFrame(link.href);
  }
});

// The frame may not navigate its parent, but the parent's own document may.
function leaveFrame(href) {
  const outer = window.parent.document;
  const anchor = outer.createElement("a");
  anchor.href = href;
  outer.body.append(anchor);
  anchor.click();
  anchor.remove();
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  const act = form.dataset.posts ? post : form.dataset.replays ? replay : form.dataset.clears ? clear : null;
  if (!act) return;
  event.preventDefault();
  const button = event.submitter ?? form.querySelector("button");
  if (button.disabled) return;
  button.disabled = true;
  form.setAttribute("aria-busy", "true");
  act(form, button)
    .catch((error) => showError(form, error.html ?? errorNote(error.message)))
    .finally(() => {
      button.disabled = false;
      form.removeAttribute("aria-busy");
    });
});

document.addEventListener("close", (event) => {
  if (event.target.matches?.("dialog") && event.target.dataset.changed) location.reload();
}, true);

addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload(); // as it was left, with its buttons disabled
});

async function post(form) {
  const body = new URLSearchParams(new FormData(form));
  let html;
  try {
    html = await askPage(form.dataset.posts, { method: "POST", body });
  } finally { // it may have been done, whatever the answer
    if (!body.get("dry_run")) markChanged(form);
  }
  answer(form, html); // takes the form away if an answer held it
}

// A run of the DAG with these txids in its conf, asked of Airflow's own API with the user's session.
async function replay(form, button) {
  const data = new FormData(form);
  const topology = form.dataset.replays;
  const wanted = new URLSearchParams({ text: data.get("replay") });
  const chosen = await askPage(`${base}/dags/${encodeURIComponent(topology)}/chosen?${wanted}`);
  const { txids, dag_id, is_group } = JSON.parse(chosen);
  const conf = { replay: txids, reason: data.get("reason"), dry_run: Boolean(button.value) };
  const run = await ask("POST", `/api/v2/dags/${encodeURIComponent(dag_id)}/dagRuns`, {
    body: { logical_date: null, conf: is_group ? { [topology]: conf } : conf },
  });
  const query = new URLSearchParams({ run_id: run.dag_run_id, dag: dag_id });
  location.assign(`${base}/dags/${encodeURIComponent(topology)}/runs?${query}`);
  await new Promise(() => {}); // a second click until then would be a second run
}

// Of each run the tasks of some txids; all of its tasks if Airflow no longer knows which these are.
async function clear(form) {
  const runs = JSON.parse(form.dataset.clears);
  const { actions } = form.dataset;
  const whole = [], gone = [];
  const lost = () => (gone.length ? errorNote(`Airflow no longer has ${gone.map((run) => run.run_id).join(", ")}. The command line's resume-runs says what makes such a run anew.`) : "");
  for (const [place, run] of runs.entries()) {
    const text = await askPage(`${actions}/undone`, { method: "POST" });
    const undone = JSON.parse(parsed(text).querySelector("[data-clears]")?.dataset.clears ?? "[]");
    const now = undone.find((one) => one.dag_id === run.dag_id && one.run_id === run.run_id);
    if (!run.txids.every((txid) => now?.txids.includes(txid))) { // a clear would replay what is done
      const count = place - gone.length;
      const cleared = count ? `Only ${count} of ${runs.length} runs were cleared` : "Nothing was cleared";
      answer(form, errorNote(`${cleared}: somebody has worked on these since they were shown.`) + lost() + text);
      return;
    }
    const dag = `/api/v2/dags/${encodeURIComponent(run.dag_id)}`;
    const path = `${dag}/dagRuns/${encodeURIComponent(run.run_id)}`;
    const tasks = await tasksOf(`${path}/taskInstances`);
    if (tasks === null) {
      gone.push(run);
      continue;
    }
    const emitted = await emittedBy(`${path}/taskInstances/${run.group}emit`);
    const { txids, group } = run;
    const body = JSON.stringify({ tasks, emitted, txids, group });
    const { task_ids, is_known } = JSON.parse(await askPage(`${actions}/to_clear`, { method: "POST", body }));
    const how = { dry_run: false, only_failed: false };
    if (task_ids.length) await ask("POST", `${dag}/clearTaskInstances`, { body: { ...how, dag_run_id: run.run_id, task_ids } });
    else await ask("POST", `${path}/clear`, { body: how });
    if (!is_known) whole.push(run.run_id);
    form.dataset.clears = JSON.stringify([...gone, ...runs.slice(place + 1)]); // clears none twice
    markChanged(form);
  }
  const count = runs.length - gone.length;
  const done = `${count === 1 ? "1 run is" : `${count} runs are`} cleared: Airflow works on ${count === 1 ? "it" : "them"}.`;
  const wholly = whole.length ? ` All tasks of ${whole.join(", ")}: Airflow no longer has what emit returned.` : "";
  answer(form, (count ? note("good", "✓", done + wholly) : "") + lost());
}

// All tasks of a run; null if Airflow no longer has it. A short page need not be the last one: Airflow
// answers no more at once than its maximum_page_limit.
async function tasksOf(path) {
  const tasks = [];
  for (;;) {
    const page = await ask("GET", `${path}?limit=${PAGE}&offset=${tasks.length}&order_by=id`, { or404: null });
    if (page === null) return null;
    tasks.push(...page.task_instances);
    if (!page.task_instances.length || tasks.length >= page.total_entries) break;
  }
  return tasks.map((task) => ({
    task_id: task.task_id, map_index: task.map_index, state: task.state, label: task.rendered_map_index,
  }));
}

// What the page itself answers. Anything else is an error: a login or a proxy answers with 200, too.
async function askPage(path, { method = "GET", body } = {}) {
  const headers = typeof body === "string" ? { ...HEADERS, "Content-Type": "application/json" } : HEADERS;
  const { response, text } = await answerOf(path, { method, body, headers });
  const isOwn = response.headers.has(HEADER);
  if (response.ok && isOwn) return text;
  const html = isOwn && response.headers.get("content-type")?.includes("text/html") ? text : undefined;
  throw Object.assign(new Error(refusal(method, response, text, ` (it lacks the header ${HEADER})`)), { html });
}

async function answerOf(path, options) {
  try {
    const response = await fetch(path, options);
    return { response, text: await response.text() };
  } catch {
    throw new Error("No answer came. What you asked for may have been done: look before you do it again.");
  }
}

// None if Airflow no longer has them. Any other refusal is an error: it must not clear a whole run.
async function emittedBy(path) {
  const found = await ask("GET", `${path}/xcomEntries/return_value`, { or404: {} });
  const emitted = typeof found.value === "string" ? JSON.parse(found.value) : found.value;
  return Array.isArray(emitted) ? emitted : null;
}

async function ask(method, path, { body, or404 } = {}) {
  const { response, text } = await answerOf(`${airflow}${path}`, {
    method,
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: body && JSON.stringify(body),
  });
  if (response.status === 404 && or404 !== undefined) return or404;
  try {
    if (response.ok) return JSON.parse(text);
  } catch {
    // a login or a proxy has answered
  }
  throw new Error(refusal(method, response, text));
}

function refusal(method, { ok, status }, text, shownBy = "") {
  const what = ok ? `This was not answered by Airflow${shownBy}` : `Airflow refuses it (${status})`; // but by a login or a proxy
  const mayBeDone = method !== "GET" && (ok || status >= 500);
  const then = status === 401 ? " Log in in another tab, and try again."
    : mayBeDone ? " It may have been done: look before you do it again." : "";
  const detail = detailOf(text).replace(/[.:]$/, "");
  return `${what}${detail && `: ${detail}`}.${then}`;
}

function detailOf(text) {
  try {
    const { detail } = JSON.parse(text);
    if (typeof detail === "string") return detail;
    if (Array.isArray(detail)) return detail.map((one) => `${one.loc?.at(-1)}: ${one.msg}`).join("; ");
    return JSON.stringify(detail) ?? "";
  } catch {
    const { body } = parsed(text.replaceAll("<", " <"));
    for (const unread of body.querySelectorAll("script, style, template, noscript")) unread.remove();
    return body.textContent.replace(/\s+/g, " ").trim().slice(0, 200);
  }
}

function parsed(html) {
  return new DOMParser().parseFromString(html, "text/html");
}

function answer(form, html) {
  const place = form.closest("dialog") ?? form.parentElement;
  place.querySelector(".answer")?.remove();
  const box = document.createElement("div");
  box.className = "answer";
  box.innerHTML = html;
  place.append(box);
  if (place.matches("dialog:not([open])")) place.showModal(); // closed before the answer came
  box.querySelector("button, a")?.focus();
  box.scrollIntoView({ block: "nearest" });
}

// A form in an answer stays: nothing else offers what it does once more.
function showError(form, html) {
  if (!form.closest(".answer")) {
    answer(form, html);
    return;
  }
  form.querySelector(".note.bad")?.remove();
  form.insertAdjacentHTML("beforeend", html);
}

function markChanged(form) {
  const dialog = form.closest("dialog");
  if (dialog) dialog.dataset.changed = "yes";
}

function note(tone, sign, text) {
  const box = document.createElement("div");
  box.innerHTML = `<div class="note ${tone}" role="status"><span class="sign" aria-hidden="true">${sign}</span><p></p></div>`;
  box.querySelector("p").textContent = text;
  return box.innerHTML;
}

function errorNote(text) {
  return note("bad", "✕", text).replace('role="status"', 'role="alert"');
}

// --- plots ---------------------------------------------------------------------------------------

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

const PLOTS = {
  lag: { of: (data) => data.lag, label: "lag", unit: "s", stroke: "--waiting-line" },
  commit: { of: (data) => data.commit.map((v) => (v === null ? null : v * 1000)), label: "commit", unit: "ms", stroke: "--commit" },
  throughput: { of: throughput, label: "rows an hour", unit: "", stroke: "--processing" },
};

// Rows an hour over a sliding time of ten commits: a single commit has no rate.
function throughput(data) {
  const window = 10;
  const order = data.txid.map((_, i) => i).sort((a, b) => data.committed_at[a] - data.committed_at[b]);
  const result = new Array(data.txid.length).fill(null);
  order.forEach((own, place) => {
    const first = Math.max(place - window, 0);
    const took = data.committed_at[own] - data.committed_at[order[first]];
    if (place - first < 5 || took <= 0) return;
    const rows = order.slice(first + 1, place + 1).reduce((sum, i) => sum + (data.rows[i] ?? 0), 0);
    result[own] = (rows * 3600) / took;
  });
  return result;
}

async function plots() {
  const place = document.querySelector("[data-series]");
  if (!place) return;
  const data = await (await fetch(place.dataset.series)).json();
  await uplotLoaded();
  const draw = () => {
    for (const figure of place.querySelectorAll("[data-plot]")) {
      figure.querySelector(".uplot")?.remove();
      figure.querySelector("details, .empty-plot")?.remove();
      plot(figure, data, PLOTS[figure.dataset.plot]);
    }
  };
  draw();
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth !== width) {
      width = place.clientWidth;
      draw();
    }
  }).observe(place);
  addEventListener("themechange", draw);
}

function uplotLoaded() {
  if (window.uPlot) return Promise.resolve();
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${base}/static/uplot/uPlot.iife.min.js`;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
}

function plot(figure, data, { of, label, unit, stroke }) {
  const values = of(data);
  if (values.every((value) => value === null)) {
    figure.append(Object.assign(document.createElement("p"), { className: "dim empty-plot", textContent: "Too few commits at different times yet." }));
    return;
  }
  const axis = { stroke: color("--dim"), grid: { stroke: color("--line") }, ticks: { stroke: color("--line") } };
  const whole = (v) => (v === null ? "" : new Intl.NumberFormat("en", { maximumSignificantDigits: 4 }).format(v));
  const short = new Intl.NumberFormat("en", { notation: "compact" });
  new window.uPlot(
    {
      width: figure.clientWidth,
      height: 180,
      cursor: { y: false },
      legend: { live: true },
      scales: { x: { time: false }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.1 : 1] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map((v) => (Number.isInteger(v) ? v : "")) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((v) => short.format(v)) },
      ],
      series: [
        { label: "txid" },
        { label: unit ? `${label} (${unit})` : label, stroke: color(stroke), width: 1.5, points: { show: values.length < 60, size: 5 }, value: (_, v) => whole(v) },
      ],
    },
    [data.txid, values],
    figure,
  );
  figure.append(asTable(data.txid, values, label, unit, whole));
}

// The same numbers for those who do not see the plot.
function asTable(txids, values, label, unit, whole) {
  const details = document.createElement("details");
  details.innerHTML = '<summary>As a table</summary><div class="scroll short"><table><thead><tr><th scope="col" class="right">Txid</th><th scope="col" class="right"></th></tr></thead><tbody></tbody></table></div>';
  details.querySelector("th:last-child").textContent = unit ? `${label} (${unit})` : label;
  details.addEventListener("toggle", () => {
    const body = details.querySelector("tbody");
    if (body.rows.length) return;
    txids.forEach((txid, i) => {
      const row = body.insertRow(0);
      for (const text of [txid, whole(values[i])]) {
        const cell = row.insertCell();
        cell.className = "right";
        cell.textContent = text;
      }
    });
  });
  return details;
}

// --- what scrolls ---------------------------------------------------------------------------------
// A wide table without links could not be scrolled by the keyboard.

function scrollers() {
  for (const box of document.querySelectorAll(".scroll")) {
    const scrolls = box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight;
    if (scrolls) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

addEventListener("resize", scrollers);
document.addEventListener("toggle", scrollers, true);

function prepare() {
  scrollers();
  plots();
}

prepare();
refresh();
