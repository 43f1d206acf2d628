// The API's schema as a page: each endpoint with its request, its response, and a command to try it.

"use strict";

function resolveSchema(schema, all) {
  const name = schema?.$ref?.split("/").at(-1);
  return name ? all[name] : schema;
}

// A type in a word or two.
function typeOf(schema, all) {
  if (!schema) return "";
  if (schema.$ref) return schema.$ref.split("/").at(-1);
  if (schema.anyOf)
    return schema.anyOf
      .map((one) => typeOf(one, all))
      .filter((one) => one !== "null")
      .join(" or ");
  if (schema.enum) return schema.enum.map((one) => JSON.stringify(one)).join(" or ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${schema.items ? typeOf(schema.items, all) || "pairs" : "pairs"}`;
  return { integer: "whole number", object: "object", boolean: "true or false" }[schema.type] ?? schema.type ?? "";
}

function limitsOf(schema) {
  const some = [schema, ...(schema.anyOf ?? [])].find((one) => one.minimum !== undefined || one.maximum !== undefined);
  return some ? `${some.minimum ?? ""} to ${some.maximum ?? ""}` : "";
}

function fields(schema, all) {
  const known = resolveSchema(schema, all);
  if (!known?.properties) return make("p", { class: "quiet" }, typeOf(schema, all));
  const required = new Set(known.required ?? []);
  return make(
    "table",
    {},
    make(
      "tbody",
      {},
      ...Object.entries(known.properties).map(([name, one]) =>
        make(
          "tr",
          {},
          make("td", {}, name),
          make("td", {}, typeOf(one, all) + (required.has(name) ? "" : ", optional")),
          make("td", { class: "quiet" }, [one.description, limitsOf(one)].filter(Boolean).join("; ")),
        ),
      ),
    ),
  );
}

const EXAMPLES = {
  "/translate": `-d q="it is forty-two" -d source=SOURCE -d target=TARGET`,
  "/detect": `-d q="it is forty-two"`,
  "/translate_file": `-F file=@letter.txt -F source=SOURCE -F target=TARGET`,
  "/v1/translate": `-H "Content-Type: application/json" -d '{"texts": ["it is forty-two"], "n_best": 3, "alignments": true}'`,
  "/v1/stream": `-N -H "Content-Type: application/json" -d '{"text": "it is forty-two\\nand two"}'`,
  "/v1/continue": `-H "Content-Type: application/json" -d '{"text": "it is forty-two", "prefix": "es"}'`,
  "/v1/attention": `-H "Content-Type: application/json" -d '{"text": "it is forty-two"}'`,
};

function endpoint(path, method, one, all, pair) {
  const given = Object.values(one.requestBody?.content ?? {})[0]?.schema;
  const answer = Object.values(one.responses["200"]?.content ?? {})[0]?.schema;
  const example = (EXAMPLES[path] ?? "").replace("SOURCE", pair[0]).replace("TARGET", pair[1]);
  const kinds = Object.keys(one.requestBody?.content ?? {}).join(" or ");
  return make(
    "article",
    { class: "endpoint", id: path },
    make("h3", {}, make("span", {}, method.toUpperCase()), ` ${path}`),
    make("p", {}, one.description ?? one.summary ?? ""),
    ...(given ? [make("h4", {}, `request (${kinds})`), fields(given, all)] : []),
    make("h4", {}, "response"),
    fields(answer?.items ?? answer, all),
    make("pre", {}, `curl ${location.origin}${path} ${example}`.trim()),
  );
}

async function showApi() {
  const root = document.querySelector("main");
  const api = await (await ask("openapi.json")).json();
  const languages = await (await ask("languages")).json();
  const first = languages.find((one) => one.targets.some((code) => code !== one.code));
  const pair = first ? [first.code, first.targets.find((code) => code !== first.code)] : ["en", "de"];
  const all = api.components?.schemas ?? {};
  const groups = new Map();
  for (const [path, methods] of Object.entries(api.paths))
    for (const [method, one] of Object.entries(methods)) {
      const tag = one.tags?.[0] ?? "";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag).push(endpoint(path, method, one, all, pair));
    }
  root.append(
    make("p", {}, `${api.info.summary} Version ${api.info.version}.`),
    make("p", { class: "quiet" }, 'Errors are JSON: {"error": reason}. A 503 says in Retry-After when to try again.'),
  );
  for (const [tag, articles] of groups) root.append(make("section", {}, make("h2", {}, tag), ...articles));
  const named = [...groups.values()].flat().flatMap((article) => [...article.querySelectorAll("td:nth-child(2)")]);
  const used = new Set(
    named.flatMap((cell) => cell.textContent.match(/[A-Z]\w+/g) ?? []).filter((name) => name in all),
  );
  root.append(
    make(
      "section",
      {},
      make("h2", {}, "forms"),
      ...[...used].map((name) =>
        make("article", { class: "endpoint" }, make("h3", {}, name), make("p", {}, all[name].description ?? ""), fields(all[name], all)),
      ),
    ),
  );
}

showApi();
