"""The console: a page for browsers that shows the agent and takes decisions, on the operations under `/v1`.

    pages      serves the files of `static/`, under a path with their digest, with the policy for pages

The files, which need no build:

    index.html      the empty page           style.css     the one style sheet, light and dark
    app.js          sign-in, router, layout  views.js      the table of the views
    api.js          the client of `/v1`      parts.js      what views are made of: table, clock, badge, dialog, …
    views/NAME.js   one view each            preact.js     Preact with htm; NOTICE has its licences and digest
    charts.js       bars, a curve, a meter   growing.js    lists that are read by a growing number of rows
    confirm.js      a button that asks first json.js       fields for JSON; the change from one value to another

Add a view: write `views/NAME.js` with one `export default function View({path, query})`, which gets the words of the
address after `#/NAME/` and its query, and add a row to `views.js`: name, label, group. All data come from `/v1`:
`useData(path)` reads and polls by ETag while the page is visible, `usePages(path, next)` reads a list page by page,
`useStream(path, handler)` follows events, `change(method, path, body)` changes something. `<${Load} of=${data}>` shows
waiting and errors, `<${Act} scope="operate" …>` a button that says why it is disabled. Text from outside goes through
`<${Foreign} text=…/>`; nothing is ever rendered as HTML, and text from outside becomes no link.
"""
