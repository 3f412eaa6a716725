/** A DNS process takes the port over from another while clients ask; no client may notice. */
import { type Socket, createSocket } from 'node:dgram'
import { once } from 'node:events'
import { connect } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { startDnsProcess } from '../dns/dns-process.ts'
import { decode, query, uint16s } from '../dns/wire.ts'
import { attack } from './support/attack.ts'

const NAME = 'web.shop.svc.clusterset.local.'
const RIGHT = 'qr aa rd NOERROR 243.0.0.7'
/** How long the new process has no records after its start. */
const HELD_MS = 300
const QUESTIONS = 2000
/** The kernel spreads clients over the processes of a port by a hash of their addresses. */
const SOCKETS = 50
/** The client never has more open questions than a socket's queue holds, so load alone loses none. */
const OPEN_AT_ONCE = 100

interface Heard {
  asked: number
  /** From each answer to how often it came. */
  readonly answers: Map<string, number>
}

function count(heard: Heard, said: string): void {
  heard.answers.set(said, (heard.answers.get(said) ?? 0) + 1)
}

function said(message: Buffer): string {
  const { flags, answers } = decode(message)
  return [flags, ...answers.map(({ data }) => data)].join(' ')
}

/** Asks over UDP, each question once, until `isDone` holds and at least QUESTIONS were asked. */
async function askDatagrams(t: Test, place: { host: string; port: number }, isDone: () => boolean): Promise<Heard> {
  const heard: Heard = { asked: 0, answers: new Map() }
  const open = new Set<string>()
  const sockets: Socket[] = []
  t.teardown(() => sockets.forEach((socket) => socket.close()))
  for (let i = 0; i < SOCKETS; i += 1) {
    const socket = createSocket(place.host.includes(':') ? 'udp6' : 'udp4')
    sockets.push(socket)
    socket.on('error', (error) => count(heard, error.message))
    socket.on('message', (message) => {
      open.delete(`${i}/${message.readUInt16BE(0)}`)
      count(heard, said(message))
    })
    socket.connect(place.port, place.host)
    await once(socket, 'connect')
  }
  while (heard.asked < QUESTIONS || !isDone()) {
    // At most two questions a millisecond are sent, so that they last longer than the hand-over.
    for (let i = 0; i < 4 && open.size < OPEN_AT_ONCE; i += 1) {
      const id = heard.asked & 0xffff
      const at = heard.asked % SOCKETS
      heard.asked += 1
      open.add(`${at}/${id}`)
      sockets[at]?.send(query(NAME, { id }))
    }
    await sleep(2)
  }
  for (let tries = 0; open.size > 0 && tries < 300; tries += 1) await sleep(10)
  t.equal(open.size, 0, 'every question over UDP has an answer')
  return heard
}

/** Asks one question over a TCP connection of its own, and returns the answer or the error. */
async function askOnce({ host, port }: { host: string; port: number }): Promise<string> {
  const socket = connect(port, host)
  try {
    await once(socket, 'connect')
    const bytes = query(NAME)
    socket.write(Buffer.concat([uint16s(bytes.length), bytes]))
    const [answer] = (await Promise.race([
      once(socket, 'data'),
      once(socket, 'end').then(() => Promise.reject(new Error('ended without an answer'))),
    ])) as [Buffer]
    return said(answer.subarray(2))
  } catch (error) {
    return (error as Error).message
  } finally {
    socket.destroy()
  }
}

async function askConnections(place: { host: string; port: number }, isDone: () => boolean): Promise<Heard> {
  const heard: Heard = { asked: 0, answers: new Map() }
  const client = async (): Promise<void> => {
    while (!isDone()) {
      heard.asked += 1
      count(heard, await askOnce(place))
    }
  }
  await Promise.all(Array.from({ length: 8 }, () => client()))
  return heard
}

/**
 * Replaces the serving process `times` times: a new one starts, has no records for a while and listens; then the old
 * one is ended.
 */
async function handOver(t: Test, host: string, times: number): Promise<{ datagrams: Heard; connections: Heard }> {
  let old = await startDnsProcess(t, { host, port: 0, heldMs: 0 })
  const place = { host, port: old.port }
  let isDone = false
  const asking = [askDatagrams(t, place, () => isDone), askConnections(place, () => isDone)] as const
  for (let i = 0; i < times; i += 1) {
    const young = await startDnsProcess(t, { ...place, heldMs: HELD_MS })
    t.equal(await old.stop(), 0)
    old = young
  }
  isDone = true
  const [datagrams, connections] = await Promise.all(asking)
  return { datagrams, connections }
}

await attack('dns-hand-over', async (t) => {
  for (const [host, times] of [
    ['127.0.0.1', 2],
    ['::1', 1],
    ['0.0.0.0', 1],
  ] as const) {
    const { datagrams, connections } = await handOver(t, host, times)
    t.same(Object.fromEntries(datagrams.answers), { [RIGHT]: datagrams.asked }, `${host}: UDP`)
    t.same(Object.fromEntries(connections.answers), { [RIGHT]: connections.asked }, `${host}: TCP`)
    t.ok(datagrams.asked >= QUESTIONS && connections.asked > 100, `${host}: they went on asking`)
  }
})

await attack('dns-blind-successor', async (t) => {
  const place = { host: '127.0.0.1', port: 0 }
  const old = await startDnsProcess(t, { ...place, heldMs: 0 })
  const here = { ...place, port: old.port }
  let listens = false
  const young = startDnsProcess(t, { ...here, heldMs: 1e9 }).then(() => (listens = true))
  const questions = await askDatagrams(t, here, () => true)
  t.same(Object.fromEntries(questions.answers), { [RIGHT]: questions.asked })
  t.equal(listens, false, 'it leaves the port to who knows')
  t.equal(await old.stop(), 0)
  await young
  t.equal(await askOnce(here), 'qr rd SERVFAIL')
})

await attack('dns-restart', async (t) => {
  const place = { host: '127.0.0.1', heldMs: 0 }
  const old = await startDnsProcess(t, { ...place, port: 0 })
  const idle = connect(old.port, place.host)
  await once(idle, 'connect')
  const closed = once(idle.resume(), 'close')
  const startMs = performance.now()
  t.equal(await old.stop(), 0)
  await closed
  const endedMs = performance.now() - startMs
  const young = await startDnsProcess(t, { ...place, port: old.port })
  t.equal(await askOnce({ ...place, port: young.port }), RIGHT)
  // The server closes an idle connection after 10 s anyway; bench:dns measures how long an end takes.
  t.ok(endedMs < 8000, `ended within ${Math.round(endedMs)} ms, with a connection open that says nothing`)
})
