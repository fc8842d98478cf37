// Screenshots of every screen at three widths, light and dark, for visual review: `node look.js FOLDER [NAME…]`.
import { mkdir } from "node:fs/promises";
import { browser, page, serve } from "./kit.js";

const [folder = "shots", ...only] = process.argv.slice(2);
await mkdir(folder, { recursive: true });
const server = await serve(), chrome = await browser();
const SCREENS = [["waiting", "/"], ["runs", "/runs"], ["run", "/runs/order-1"], ["failed", "/runs/shipment-1"], ["function", "/runs/import-1"], ["tasks", "/tasks"], ["workflows", "/workflows"], ["workflow", "/workflows/demo-shipment"], ["actors", "/actors"], ["store", "/store?prefix=workflow/order-1/"], ["system", "/system"], ["lost", "/runs/nobody"]];
try {
  await new Promise((done) => setTimeout(done, 2500));
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
