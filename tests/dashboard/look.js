// Screenshots of every screen at three widths, light and dark, for visual review: `node look.js FOLDER [NAME…]`.
// `npm run images` makes those of the documentation again: `node look.js ../../docs/images --docs`.
import { mkdir } from "node:fs/promises";
import { browser, open, page, serve } from "./kit.js";

const [folder = "shots", ...rest] = process.argv.slice(2), isDocs = rest.includes("--docs"), only = rest.filter((one) => one !== "--docs");
await mkdir(folder, { recursive: true });
const server = await serve(), chrome = await browser();
/** Pictures of the documentation: file, path, and a text that shows that the screen is complete. */
const DOCS = [["dashboard-waiting", "/", "Why it waits"], ["dashboard-runs", "/runs", "shipment-1"], ["dashboard-run", "/runs/shipment-1?step=book-carrier", "Attempts"]];
const DOCS_BYTES_MAX = 200_000;
const SCREENS = [["waiting", "/"], ["runs", "/runs"], ["run", "/runs/order-1"], ["failed", "/runs/shipment-1"], ["function", "/runs/import-1"], ["tasks", "/tasks"], ["workflows", "/workflows"], ["workflow", "/workflows/demo-shipment"], ["actors", "/actors"], ["store", "/store?prefix=workflow/order-1/"], ["system", "/system"], ["lost", "/runs/nobody"]];
try {
  await new Promise((done) => setTimeout(done, 2500));
  if (isDocs) {
    const view = await page(chrome, server.url, { width: 1440, height: 900 });
    for (const [name, path, text] of DOCS) {
      await open(view, path, text);
      const picture = await view.tab.screenshot({ path: `${folder}/${name}.png` });
      if (picture.length > DOCS_BYTES_MAX) throw new Error(`${name}.png has ${picture.length} bytes; at most ${DOCS_BYTES_MAX} belong in the repository`);
    }
    await view.close();
  } else
  for (const [width, height] of [[1440, 900], [1100, 800], [390, 844]]) for (const dark of [false, true]) {
    const view = await page(chrome, server.url, { width, height, dark, allows: /404/ });
    for (const [name, path] of SCREENS) {
      const file = `${name}-${width}-${dark ? "dark" : "light"}`;
      if (only.length && !only.some((one) => file.includes(one))) continue;
      await view.tab.goto(server.url + path, { waitUntil: "load" });
      await view.tab.waitForTimeout(700);
      await view.tab.screenshot({ path: `${folder}/${file}.png`, fullPage: true });
    }
    if (view.complaints.length) console.log(width, dark, view.complaints);
    await view.close();
  }
} finally { await chrome.close(); await server.stop(); }
