/** Small programs that run in pods as `node -e`, and ping. */
import type { Netns } from '../../support/netns.ts'

/** Runs a program inside the namespace and returns what it prints. */
export async function inPod(ns: Netns, program: keyof typeof POD_PROGRAMS, ...args: string[]): Promise<string> {
  return (await ns.exec(process.execPath, ['-e', POD_PROGRAMS[program], ...args])).trim()
}

/** Sends one ping and returns all that ping prints, whether it succeeds or not. */
export async function pings(from: Netns, to: string, ...options: string[]): Promise<string> {
  const { stdout, stderr } = await from.tryExec('ping', ['-n', '-c', '1', '-W', '5', ...options, to])
  return stdout + stderr
}

export const POD_PROGRAMS = {
  /**
   * Answers each TCP connection and each datagram with the caller's address and the number of bytes received. Argument:
   * '::' for IPv6.
   */
  server: `
    const net = require('node:net'), dgram = require('node:dgram'), host = process.argv[1] ?? '0.0.0.0'
    net.createServer({ allowHalfOpen: true }, (socket) => {
      let bytes = 0
      socket.on('error', () => undefined)
      socket.on('data', (chunk) => { bytes += chunk.length })
      socket.on('end', () => socket.end(socket.remoteAddress + ' ' + bytes))
    }).listen(8080, host, () => {
      const udp = dgram.createSocket(host === '::' ? 'udp6' : 'udp4')
      udp.on('message', (bytes, from) => udp.send(Buffer.concat([Buffer.from(from.address + ' ' + bytes.length), Buffer.alloc(bytes.length)]), from.port, from.address))
      udp.bind(8080, host, () => console.log('ready'))
    })`,
  tcp: `
    const socket = require('node:net').connect(8080, process.argv[1], () => socket.end(Buffer.alloc(200000)))
    socket.setTimeout(8000, () => socket.destroy(new Error('timeout')))
    socket.on('error', (error) => { console.log(error.code ?? error.message); process.exit() })
    socket.pipe(process.stdout)`,
  udp: `
    const socket = require('node:dgram').createSocket(process.argv[1].includes(':') ? 'udp6' : 'udp4')
    socket.on('message', (bytes) => { console.log(bytes.toString().replace(/\\0.*$/s, '')); process.exit() })
    socket.send(Buffer.alloc(Number(process.argv[2])), 8080, process.argv[1])
    setTimeout(() => { console.log('timeout'); process.exit() }, 5000)`,
  /** A TCP connection that sends nothing. It prints `open` once it is established, and stays until the process ends. */
  hold: `
    const socket = require('node:net').connect(8080, process.argv[1], () => console.log('open'))
    socket.on('error', (error) => { console.log(error.code ?? error.message); process.exit() })`,
  /**
   * Sends one datagram to each of many ports, from port 8080 on, so that each is a flow of its own. Arguments: address,
   * count.
   */
  datagrams: `
    const { createSocket } = require('node:dgram'), [, to, count] = process.argv
    for (let i = 0; i < Number(count); i++) {
      const socket = createSocket(to.includes(':') ? 'udp6' : 'udp4')
      socket.send('x', 8080 + i, to, () => socket.close())
    }`,
  /** Prints the error that a datagram to a closed port causes. */
  closed: `
    const socket = require('node:dgram').createSocket(process.argv[1].includes(':') ? 'udp6' : 'udp4')
    socket.on('error', (error) => { console.log(error.code); process.exit() })
    socket.connect(9, process.argv[1], () => socket.send('x'))
    setTimeout(() => { console.log('timeout'); process.exit() }, 3000)`,
} as const
