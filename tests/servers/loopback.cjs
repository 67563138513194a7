// node --require ./loopback.cjs SERVER: every TCP server listens on 127.0.0.1 only, also one that would take any address.
const net = require("net");
const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (...given) {
  const [first] = given;
  if (typeof first === "number" || /^\d+$/.test(String(first))) {
    const called = given.find((each) => typeof each === "function");
    return listen.call(this, { port: Number(first), host: "127.0.0.1" }, called);
  }
  if (first && typeof first === "object" && first.port !== undefined && !first.path) first.host = "127.0.0.1";
  return listen.apply(this, given);
};
