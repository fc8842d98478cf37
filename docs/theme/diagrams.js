/** Draws the diagrams of the documentation site, which the pages describe as Mermaid text. */
const diagrams = document.querySelectorAll("code.language-mermaid");

function draw() {
    const isDark = ["coal", "navy", "ayu"].some((theme) => document.documentElement.classList.contains(theme));
    for (const code of diagrams) {
        const drawing = document.createElement("div");
        drawing.className = "mermaid";
        drawing.textContent = code.textContent;
        code.parentElement.replaceWith(drawing);
    }
    mermaid.initialize({ startOnLoad: false, theme: isDark ? "dark" : "default" });
    mermaid.run();
}

// Without the renderer, which `cargo xtask test` puts beside the pages, the text of the diagram stays.
if (diagrams.length > 0) {
    const renderer = document.createElement("script");
    renderer.src = `${path_to_root}mermaid.min.js`;
    renderer.onload = draw;
    document.head.append(renderer);
}
