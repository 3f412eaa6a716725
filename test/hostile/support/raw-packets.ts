/**
 * Packets that are built byte by byte, for VXLAN devices of our number, and the program that sends them. They use none
 * of our code.
 */
import type { Netns } from '../../support/netns.ts'

export interface InnerPacket {
  readonly from: string
  readonly to: string
  /** The default is 9999. */
  readonly port?: number
  /** The flags of a TCP segment. Absent: it is a UDP datagram. */
  readonly tcp?: number
}

/** RFC 9293 section 3.1. */
export const TCP = { syn: 0x02, rst: 0x04, ack: 0x10 } as const

/** A frame that a VXLAN device of our number accepts on the node with this InternalIP, with UDP or TCP inside. */
export function vxlanFrame(node: string, inner: InnerPacket): string {
  return vxlanFrameOf(node, inner.to.includes(':') ? ipv6(inner) : ipv4(inner))
}

/** The same with these bytes inside, which begin with the header of an IPv4 or IPv6 packet. */
export function vxlanFrameOf(node: string, packet: Buffer): string {
  const header = Buffer.from([8, 0, 0, 0, (7300 >> 16) & 0xff, (7300 >> 8) & 0xff, 7300 & 0xff, 0])
  const destination = Buffer.from([0x0a, 0x5e, ...node.split('.').map(Number)])
  const source = Buffer.from([2, 0, 0, 0, 0, 9])
  const type = Buffer.from((packet[0] ?? 0) >> 4 === 6 ? [0x86, 0xdd] : [0x08, 0x00])
  return Buffer.concat([header, destination, source, type, packet]).toString('hex')
}

export interface Datagram {
  readonly to: string
  readonly port: number
  /** The bytes as hexadecimal text. */
  readonly hex: string
  /** The forged source address. Absent: the sender's own. */
  readonly from?: string
}

/** Sends from sockets that need no privilege. The namespace has the forged source addresses meanwhile. */
export async function sendDatagrams(ns: Netns, datagrams: readonly Datagram[]): Promise<void> {
  const forged = [...new Set(datagrams.flatMap(({ from }) => from ?? []))]
  const change = async (verb: 'add' | 'del'): Promise<void> => {
    for (const from of forged) {
      await ns.tryExec('ip', ['address', verb, `${from}/${from.includes(':') ? 128 : 32}`, 'dev', 'lo'])
    }
  }
  await change('add')
  await ns.exec(process.execPath, ['-e', SENDER, JSON.stringify(datagrams)])
  await change('del')
}

const SENDER = `
  const { createSocket } = require('node:dgram')
  for (const { to, port, hex, from } of JSON.parse(process.argv[1])) {
    const socket = createSocket(to.includes(':') ? 'udp6' : 'udp4').on('error', () => socket.close())
    const send = () => socket.send(Buffer.from(hex, 'hex'), port, to, () => socket.close())
    if (from === undefined) send()
    else socket.bind(0, from, send)
  }`

/**
 * The result of a TCP connection: 'connected', an error code, or 'timeout' after 700 ms. For UDP it sends a datagram,
 * and 'connected' means that an answer came.
 */
export async function knockAt(
  ns: Pick<Netns, 'exec'>,
  protocol: 'tcp' | 'udp',
  to: string,
  port: number,
): Promise<string> {
  return (await ns.exec(process.execPath, ['-e', KNOCKER, protocol, to, String(port)])).trim()
}

const KNOCKER = `
  const [protocol, host, port] = process.argv.slice(1)
  const tell = (word) => { console.log(word); process.exit() }
  setTimeout(() => tell('timeout'), 700)
  if (protocol === 'tcp') require('node:net').connect(Number(port), host, () => tell('connected')).on('error', (e) => tell(e.code))
  else {
    const socket = require('node:dgram').createSocket(host.includes(':') ? 'udp6' : 'udp4')
    socket.on('error', (e) => tell(e.code)).on('message', () => tell('connected'))
    socket.connect(Number(port), host, () => socket.send('x'))
  }`

/**
 * A program that answers every TCP connection and every datagram. Arguments: `port` for all addresses, or
 * `port@address`.
 */
export const HOST_SERVICES = `
  const net = require('node:net'), dgram = require('node:dgram')
  const places = process.argv.slice(1).map((text) => text.split('@')).map(([port, host = '::']) => ({ port: Number(port), host }))
  Promise.all(places.flatMap(({ port, host }) => [
    new Promise((done) => net.createServer((socket) => socket.on('error', () => undefined).end('hello')).listen(port, host, done)),
    new Promise((done) => {
      const udp = dgram.createSocket(host.includes(':') ? 'udp6' : 'udp4')
      udp.on('message', (bytes, from) => udp.send(bytes, from.port, from.address)).bind(port, host, done)
    }),
  ])).then(() => console.log('ready'))`

function ipv4(inner: InnerPacket): Buffer {
  const header = Buffer.alloc(20)
  header.set(inner.from.split('.').map(Number), 12)
  header.set(inner.to.split('.').map(Number), 16)
  const payload = transport(inner, header.subarray(12))
  header.set([0x45, 0, 0, header.length + payload.length, 0, 0, 0, 0, 64, protocolOf(inner)])
  header.writeUInt16BE(checksum(header), 10)
  return Buffer.concat([header, payload])
}

function ipv6(inner: InnerPacket): Buffer {
  const header = Buffer.alloc(40)
  header.set(groups(inner.from), 8)
  header.set(groups(inner.to), 24)
  const payload = transport(inner, header.subarray(8))
  header.set([0x60, 0, 0, 0, 0, payload.length, protocolOf(inner), 64])
  return Buffer.concat([header, payload])
}

function protocolOf({ tcp }: InnerPacket): number {
  return tcp === undefined ? 17 : 6
}

/** A datagram or a segment, with the checksum that also covers the addresses (RFC 8200 section 8.1). */
function transport(inner: InnerPacket, addresses: Buffer): Buffer {
  const bytes = inner.tcp === undefined ? udp() : tcp(inner.tcp)
  bytes.writeUInt16BE(4242, 0)
  bytes.writeUInt16BE(inner.port ?? 9999, 2)
  const tail = Buffer.from([0, protocolOf(inner), 0, bytes.length])
  bytes.writeUInt16BE(checksum(Buffer.concat([addresses, tail, bytes])), inner.tcp === undefined ? 6 : 16)
  return bytes
}

function udp(): Buffer {
  const bytes = Buffer.concat([Buffer.alloc(8), Buffer.from('attack')])
  bytes.writeUInt16BE(bytes.length, 4)
  return bytes
}

function tcp(flags: number): Buffer {
  const bytes = Buffer.alloc(20)
  bytes.writeUInt32BE(5000, 4)
  bytes.writeUInt32BE((flags & TCP.ack) === 0 ? 0 : 7000, 8)
  bytes.set([0x50, flags, 0xff, 0xff], 12)
  return bytes
}

/** The bytes of an IPv6 address. */
export function groups(address: string): Buffer {
  const [left = '', right] = address.split('::')
  const read = (text: string): number[] => (text === '' ? [] : text.split(':').map((group) => parseInt(group, 16)))
  const [before, after] = [read(left), right === undefined ? [] : read(right)]
  const all = [...before, ...Array<number>(8 - before.length - after.length).fill(0), ...after]
  return Buffer.from(all.flatMap((group) => [group >> 8, group & 0xff]))
}

/** RFC 1071. */
export function checksum(bytes: Buffer): number {
  let sum = 0
  for (let i = 0; i < bytes.length; i += 2) sum += ((bytes[i] ?? 0) << 8) + (bytes[i + 1] ?? 0)
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16)
  return ~sum & 0xffff
}
