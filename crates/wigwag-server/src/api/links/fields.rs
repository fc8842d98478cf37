//! Renders a signal's payload as fields of an HTML form, for pages without script.
//!
//! Supports objects with plain fields; for any other schema the page has a text area for JSON.

use serde_json::{Map, Value};

use crate::html::escaped;

/// Prefix of the form fields' names, before the name of the property.
const PREFIX: &str = "field.";

/// A form field for one property.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    name: String,
    kind: Kind,
    title: String,
    hint: String,
    required: bool,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    Boolean,
    Choice(Vec<String>),
    Integer,
    Number,
    Text,
}

/// Returns the fields of a schema, or `None` if it is not an object of plain fields.
pub(super) fn of(schema: &Value) -> Option<Vec<Field>> {
    let properties = schema["properties"].as_object().filter(|_| schema["type"] == "object")?;
    let required = |name: &str| schema["required"].as_array().is_some_and(|all| all.iter().any(|one| one == name));
    properties.iter().map(|(name, one)| field(name, one, required(name))).collect()
}

fn field(name: &str, schema: &Value, required: bool) -> Option<Field> {
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect(),
        _ => Vec::new(),
    };
    let kind = match (schema["enum"].as_array(), &kinds[..]) {
        (Some(all), _) => Kind::Choice(all.iter().map(|one| one.as_str().map(str::to_owned)).collect::<Option<_>>()?),
        (None, ["boolean"]) => Kind::Boolean,
        (None, ["integer"]) => Kind::Integer,
        (None, ["number"]) => Kind::Number,
        (None, ["string"]) => Kind::Text,
        _ => return None,
    };
    let text = |key: &str| schema[key].as_str().unwrap_or_default().to_owned();
    let title = match (text("title"), name) {
        (title, "approved") if title.is_empty() => "Decision".to_owned(),
        (title, _) if title.is_empty() => name.replace(['_', '-'], " "),
        (title, _) => title,
    };
    Some(Field { name: name.to_owned(), kind, title, hint: text("description"), required })
}

/// Renders the fields as HTML.
pub(super) fn html(fields: &[Field]) -> String {
    fields.iter().map(one).collect()
}

fn one(field: &Field) -> String {
    let (name, title, hint) = (escaped(&field.name), escaped(&field.title), escaped(&field.hint));
    let id = format!("{PREFIX}{name}");
    let required = if field.required { " required" } else { "" };
    let optional = if field.required { "" } else { "<span class=\"dimmer\"> · optional</span>" };
    let input = match &field.kind {
        Kind::Boolean => {
            let [yes, no] = if field.name == "approved" { ["Approve", "Reject"] } else { ["Yes", "No"] };
            return format!(
                "<fieldset class=\"field nested\"><legend>{title}{optional}</legend>\
                 <label class=\"row\"><input type=\"radio\" name=\"{id}\" value=\"true\"{required}> {yes}</label>\
                 <label class=\"row\"><input type=\"radio\" name=\"{id}\" value=\"false\"{required}> {no}</label></fieldset>"
            );
        }
        Kind::Choice(all) => {
            let options: String = all.iter().map(|one| format!("<option>{}</option>", escaped(one))).collect();
            let none = if field.required { "" } else { "<option value=\"\">–</option>" };
            format!("<select class=\"input\" id=\"{id}\" name=\"{id}\"{required}>{none}{options}</select>")
        }
        Kind::Integer => {
            format!("<input class=\"input\" id=\"{id}\" name=\"{id}\" type=\"number\" step=\"1\"{required}>")
        }
        Kind::Number => {
            format!("<input class=\"input\" id=\"{id}\" name=\"{id}\" type=\"number\" step=\"any\"{required}>")
        }
        Kind::Text => format!("<input class=\"input\" id=\"{id}\" name=\"{id}\" type=\"text\"{required}>"),
    };
    let hint = if hint.is_empty() { String::new() } else { format!("<div class=\"hint\">{hint}</div>") };
    format!("<div class=\"field\"><label for=\"{id}\">{title}{optional}</label>{input}{hint}</div>")
}

/// Builds the payload from the submitted fields; `None` if the form has no such fields.
pub(super) fn read(fields: &[Field], given: &[(String, String)]) -> Option<Value> {
    given.iter().find(|(name, _)| name.starts_with(PREFIX))?;
    let mut payload = Map::new();
    for field in fields {
        let text = given.iter().find(|(name, _)| name.strip_prefix(PREFIX) == Some(&field.name)).map(|(_, text)| text);
        let Some(text) = text.filter(|text| !text.is_empty()) else { continue };
        let number = || serde_json::from_str::<serde_json::Number>(text.trim()).ok().map(Value::Number);
        let value = match field.kind {
            Kind::Boolean => Value::Bool(text == "true"),
            // Text that is not a number is sent unchanged, so that schema validation reports it.
            Kind::Integer | Kind::Number => number().unwrap_or_else(|| text.clone().into()),
            Kind::Choice(_) | Kind::Text => text.clone().into(),
        };
        payload.insert(field.name.clone(), value);
    }
    Some(Value::Object(payload))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_objects_become_fields_and_what_is_filled_in_a_payload() {
        let schema = json!({"type": "object", "required": ["approved"], "properties": {
            "approved": {"type": "boolean"}, "cents": {"type": ["integer", "null"]}, "by": {"type": "string", "title": "<b>"},
            "where": {"enum": ["bank", "ledger"]},
        }});
        let fields = of(&schema).unwrap();
        let page = html(&fields);
        assert!(page.contains("Approve") && page.contains("&lt;b&gt;") && !page.contains("<b>"), "{page}");
        let given = [("field.approved", "true"), ("field.cents", "12"), ("field.by", ""), ("other", "x")];
        let given: Vec<(String, String)> = given.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        assert_eq!(read(&fields, &given), Some(json!({"approved": true, "cents": 12})));
        assert_eq!(read(&fields, &[("payload".into(), "1".into())]), None);
        for other in
            [json!({"type": "array"}), json!({"type": "object", "properties": {"a": {"type": "object"}}}), json!(true)]
        {
            assert_eq!(of(&other), None, "{other}");
        }
    }
}
