/** Network parts for tests: a proxy whose connections can be cut, and a peer that does not read. */
import { once } from "node:events";
import net from "node:net";

/** Forwards connections to a server until it is cut. */
export class Line {
  private readonly sockets = new Set<net.Socket>();
  private constructor(
    private readonly server: net.Server,
    readonly hub: string,
  ) {}

  static async to(port: number): Promise<Line> {
    const server = net.createServer();
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const line = new Line(server, `ws://127.0.0.1:${(server.address() as net.AddressInfo).port}/hub`);
    server.on("connection", (near) => {
      const far = net.connect(port, "127.0.0.1");
      for (const [one, other] of [[near, far], [far, near]] as const) {
        line.sockets.add(one);
        one.on("error", () => other.destroy());
        one.on("close", () => (line.sockets.delete(one), other.destroy()));
        one.pipe(other);
      }
    });
    return line;
  }

  /** Cuts all current connections without a close frame. */
  cut(): void {
    for (const socket of this.sockets) socket.destroy();
  }

  close(): void {
    this.cut();
    this.server.close();
  }
}

/** A peer that implements WebSocket by hand, so that it can stop reading. */
export class Sleeper {
  private text = "";
  private constructor(private readonly socket: net.Socket) {}

  static async at(port: number): Promise<Sleeper> {
    const socket = net.connect(port, "127.0.0.1");
    socket.write(`GET /hub HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n`);
    const sleeper = new Sleeper(socket);
    socket.on("data", (chunk) => (sleeper.text += chunk.toString("latin1")));
    await sleeper.hears("\r\n\r\n");
    return sleeper;
  }

  /** Waits until a text is received. Frames are not parsed: the text suffices. */
  async hears(text: string): Promise<void> {
    while (!this.text.includes(text)) await once(this.socket, "data");
  }

  get heard(): string {
    return this.text;
  }

  send(frame: unknown): void {
    const payload = Buffer.from(JSON.stringify(frame));
    const head = payload.length < 126 ? [0x81, 0x80 | payload.length] : [0x81, 0xfe, payload.length >> 8, payload.length & 0xff];
    this.socket.write(Buffer.concat([Buffer.from([...head, 0, 0, 0, 0]), payload])); // a mask of zeros
  }

  sleep(): void {
    this.socket.pause();
  }

  wake(): void {
    this.socket.resume();
  }

  close(): void {
    this.socket.destroy();
  }
}
