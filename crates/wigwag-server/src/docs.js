// Shows the API's description, and sends what is filled in. Text is set as text, never as markup.
"use strict";

function element(name, text, attributes) {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}

function resolved(schema, all) {
  return schema && schema.$ref ? all[schema.$ref.split("/").pop()] || {} : schema || {};
}

function skeleton(schema, all) {
  const found = {};
  const fields = resolved(schema, all);
  for (const name of fields.required || []) found[name] = "";
  return JSON.stringify(found, null, 2);
}

function operationForm(path, method, operation, schemas) {
  const box = element("details");
  const head = element("summary");
  head.append(element("span", method.toUpperCase(), { class: "method" }), element("code", path), " " + operation.summary);
  const form = element("form");
  if (operation.description) form.append(element("p", operation.description));
  form.append(element("p", "Scope: " + operation["x-scope"]));
  const inputs = [];
  for (const parameter of operation.parameters) {
    const label = element("label", parameter.name + (parameter.description ? " — " + parameter.description : ""));
    const input = element("input", "", { name: parameter.name });
    label.append(element("br"), input);
    form.append(label);
    inputs.push([parameter, input]);
  }
  let body = null;
  if (operation.requestBody) {
    const schema = operation.requestBody.content["application/json"].schema;
    const described = element("details");
    described.append(element("summary", "Body"), element("pre", JSON.stringify(resolved(schema, schemas), null, 2)));
    body = element("textarea", "", { rows: 5 });
    body.value = skeleton(schema, schemas);
    form.append(described, body);
  }
  const answer = element("pre", "");
  form.append(element("button", "Send"), answer);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    send(path, method, inputs, body, answer);
  });
  box.append(head, form);
  return box;
}

async function send(path, method, inputs, body, answer) {
  const headers = {};
  const query = new URLSearchParams();
  const token = document.getElementById("token").value;
  if (token) headers["Authorization"] = "Bearer " + token;
  for (const [parameter, input] of inputs) {
    if (parameter.in === "path") path = path.replace("{" + parameter.name + "}", encodeURIComponent(input.value));
    else if (input.value && parameter.in === "query") query.set(parameter.name, input.value);
    else if (input.value) headers[parameter.name] = input.value;
  }
  if (body) headers["Content-Type"] = "application/json";
  answer.textContent = "…";
  try {
    const url = path + (query.size ? "?" + query : "");
    const response = await fetch(url, { method: method.toUpperCase(), headers, body: body ? body.value : undefined });
    answer.textContent = response.status + " " + response.statusText + "\n";
    const reader = response.body ? response.body.pipeThrough(new TextDecoderStream()).getReader() : null;
    for (let part = reader && await reader.read(); part && !part.done; part = await reader.read()) {
      answer.textContent += part.value;
    }
  } catch (error) {
    answer.textContent = String(error);
  }
}

async function show() {
  const place = document.getElementById("operations");
  const description = await (await fetch("openapi.json")).json();
  place.textContent = "";
  for (const [path, methods] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      place.append(operationForm(path, method, operation, description.components.schemas));
    }
  }
  const rows = document.querySelector("#codes tbody");
  for (const code of description["x-codes"]) {
    const row = element("tr", "", { id: "error-" + code.code });
    const name = element("td");
    name.append(element("code", code.code));
    row.append(name, element("td", String(code.status)), element("td", code.when), element("td", code.action));
    rows.append(row);
  }
}

show();
