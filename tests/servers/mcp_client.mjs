// A client of another make, the SDK for TypeScript: node mcp_client.mjs FOLDER_OF_NODE_MODULES URL TOKEN
// prints the names of the tools, and what the call of one returns, as JSON.
import { createRequire } from "node:module";

const [folder, url, token] = process.argv.slice(2);
const require = createRequire(`${folder}/package.json`);
const sdk = (path) => import(require.resolve(`@modelcontextprotocol/sdk/client/${path}.js`));
const { Client } = await sdk("index");
const { StreamableHTTPClientTransport } = await sdk("streamableHttp");

const client = new Client({ name: "tester", version: "1" });
const headers = { Authorization: `Bearer ${token}` };
await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
const { tools } = await client.listTools();
const sent = await client.callTool({ name: "runs_submit", arguments: { message: "hello" } });
const { run_id } = sent.structuredContent;
const waited = await client.callTool({ name: "runs_wait", arguments: { run_id, timeout: 60 } });
console.log(JSON.stringify({ tools: tools.map((tool) => tool.name), waited: waited.structuredContent }));
await client.close();
