/** Attempts to forge, to flood or to stop the audit log. */
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, constants, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { type AuditLine, readLines, shortLine } from '../broker/audit/audit-lines.ts'
import { MAX_LINE_BYTES } from '../../broker/audit/audit-line.ts'
import { openBrokerStore } from '../support/broker-store.ts'
import { BrokerService } from '../../protocol/gen/broker.ts'
import { SystemClock } from '../../reconcile/clock.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { attack } from './support/attack.ts'
import { type BrokerHere, brokerHere } from './support/broker-here.ts'
import { callUnary, openChannel, outcomeOf } from './support/raw-channel.ts'
import { NO_FACTS, joinBytes, joinWith, rawJoin, tokenSecret } from './support/raw-join.ts'
import { RawPublish } from './support/raw-publish.ts'
import { exportRecord, sayingRecord } from './support/raw-records.ts'

const LAUNCHER = join(import.meta.dirname, '../../bin/sealane')
const { path } = BrokerService.join

const linesOf = (file: string): AuditLine[] => readLines(readFileSync(file, 'utf8'))

async function send(broker: BrokerHere, bytes: Buffer): Promise<void> {
  const channel = openChannel(broker)
  await callUnary(channel, path, bytes)
  channel.close()
}

await attack('audit-forged-lines', async (t) => {
  const file = join(temporaryFolder(t), 'audit.log')
  const broker = await brokerHere(t, { audit: { log: file, maxBytes: 0, keep: 1 } })
  const forged = '{"v":1,"result":"ok","who":{"kind":"operator","uid":0},"what":{"act":"cluster.evict","subject":"x"}}'
  const names = [
    `roma\n${forged}\n`,
    `roma"},"what":{"act":"join","subject":"x"}}\r\n${forged}`,
    '\u2028\u2029\u0085\u001b]0;x\u0007\u202e'.repeat(30),
    '\\'.repeat(250),
  ]
  const secret = await tokenSecret(broker.state)
  for (const name of names) {
    await send(broker, await joinBytes('x'.repeat(43), name))
    await send(broker, await joinBytes(secret, name))
    await send(broker, await joinBytes(secret, 'roma', { facts: { ...NO_FACTS, podCidrs: [name] } }))
  }
  // The server refuses a larger Join before the broker reads it; this one is just below that limit.
  await send(broker, await joinBytes('x'.repeat(43), 'y'.repeat(60_000)))
  await joinWith(broker, secret, 'paris')
  const lines = await eventually(() => {
    const all = linesOf(file)
    return all.some((one) => shortLine(one) === 'join ok paris') && all
  })
  t.ok(lines.length > 8, 'the refusals are there')
  for (const one of lines) {
    t.ok(['broker.start', 'token.create', 'join'].includes(one.what.act), shortLine(one))
    t.equal(one.what.act === 'join' && one.result === 'ok', shortLine(one) === 'join ok paris')
  }
  const text = readFileSync(file, 'utf8')
  t.match(text, /^[\x20-\x7e\n]*$/, 'no terminal obeys what is in it')
  for (const line of text.split('\n')) t.ok(line.length < MAX_LINE_BYTES)
  t.notOk(text.includes(secret))
})

await attack('audit-flooded', async (t) => {
  const file = join(temporaryFolder(t), 'audit.log')
  const broker = await brokerHere(t, { audit: { log: file, maxBytes: 0, keep: 1 } })
  const member = await rawJoin(broker, 'milano')
  const publish = await new RawPublish(openChannel(broker, member)).open()
  t.teardown(() => publish.call.cancel())
  // The token is made first, so that the broker knows it when it already refuses other joins from this address.
  const secret = await tokenSecret(broker.state, 'paris')
  for (let i = 0; i < 300; i += 1) publish.sendPut(exportRecord('kube-system', `web-${i}`))
  await publish.settled()
  for (let i = 0; i < 60; i += 1) await send(broker, await joinBytes('x'.repeat(43), `c${i}`))
  await joinWith(broker, secret, 'paris')
  const lines = await eventually(() => {
    const all = linesOf(file)
    return all.some((one) => shortLine(one) === 'join ok paris') && all
  })
  const count = (act: string, result: string): number =>
    lines.filter((one) => one.what.act === act && one.result === result).length
  t.ok(count('join', 'refused') >= 5 && count('join', 'refused') <= 12, 'ten of the address, and what time gives back')
  t.ok(count('record', 'refused') >= 5 && count('record', 'refused') <= 12, 'ten of the member')
  const text = await broker.metrics.text()
  const suppressed = Number(/^sealane_broker_audit_suppressed_lines_total\S* (\d+)$/m.exec(text)?.[1])
  t.ok(suppressed > 300, `${suppressed} are counted`)
  t.match(text, /^sealane_broker_audit_lost_lines_total\S* 0$/m)
})

await attack('audit-disk-full', async (t) => {
  const folder = temporaryFolder(t)
  const mounted = spawnSync('mount', ['-t', 'tmpfs', '-o', 'size=64k', 'tmpfs', folder], { encoding: 'utf8' })
  t.equal(mounted.status, 0, mounted.stderr)
  t.teardown(() => spawnSync('umount', ['--lazy', folder]))
  const [file, ballast] = [join(folder, 'audit.log'), join(folder, 'ballast')]
  const broker = await brokerHere(t, { audit: { log: file, maxBytes: 0, keep: 1 } })
  await rawJoin(broker, 'milano')
  await eventually(() => linesOf(file).some((one) => shortLine(one) === 'join ok milano'))
  // Fill the disk until not one more byte can be written.
  for (let size = 65_536; size >= 1; size = Math.floor(size / 2)) {
    try {
      writeFileSync(ballast, 'x'.repeat(size), { flag: 'a' })
    } catch {
      // The write failed: the next one is smaller.
    }
  }
  const isReported = (): boolean => broker.logger.lines.some(({ fields }) => fields.reason === 'AuditLogUnwritable')
  // A few lines still fit into the last page of the audit file.
  let tokens = 1
  await eventually(async () => {
    await tokenSecret(broker.state)
    tokens += 1
    return isReported()
  })
  const member = await rawJoin(broker, 'paris')
  const publish = await new RawPublish(openChannel(broker, member)).open()
  t.teardown(() => publish.call.cancel())
  publish.sendPut(sayingRecord('web'))
  await publish.settled()
  t.equal(await outcomeOf(rawJoin(broker, 'roma')), 'ok', 'the broker serves all the same')
  tokens += 2
  rmSync(ballast)
  const want = ['milano', 'paris', 'roma'].map((cluster) => `join ok ${cluster}`)
  const joins = (): string[] =>
    linesOf(file)
      .map(shortLine)
      .filter((line) => line.startsWith('join'))
  await eventually(() => want.every((line) => joins().includes(line)), { say: 'every join', deadlineMs: 30_000 })
  t.same(joins(), want, 'each once, whole, in their order')
  t.equal(linesOf(file).filter(({ what }) => what.act === 'token.create').length, tokens, 'and every token')
  const said = broker.logger.lines.filter(({ fields }) => fields.reason === 'AuditLogUnwritable')
  t.equal(said.length, 1, 'told once')
})

await attack('audit-reader-stalled', async (t) => {
  const folder = temporaryFolder(t)
  const [fifo, state] = [join(folder, 'output'), join(folder, 'state')]
  spawnSync('mkfifo', [fifo])
  // The FIFO is opened for reading and writing, so that the open does not block, and the test never reads from it.
  const output = openSync(fifo, constants.O_RDWR)
  t.teardown(() => closeSync(output))
  const [port, statusPort] = [await freePort(), await freePort()]
  const address = `127.0.0.1:${port}`
  const words = ['broker', 'serve', '--state', state, '--listen', address, '--advertise', address, '--audit-log', '-']
  const child = spawn(LAUNCHER, [...words, '--status-listen', `127.0.0.1:${statusPort}`], {
    stdio: ['ignore', output, 'ignore'],
  })
  const ended = once(child, 'exit')
  t.teardown(() => child.kill('SIGKILL'))
  const page = (path: string): Promise<Response> => fetch(`http://127.0.0.1:${statusPort}${path}`)
  await eventually(async () => (await page('/readyz')).ok, { deadlineMs: 20_000 })
  const store = await openBrokerStore(state, new SystemClock())
  t.teardown(() => store.close())
  const waiting = async (): Promise<number> => {
    const text = await (await page('/metrics')).text()
    return Number(/^sealane_broker_audit_waiting_lines\S* (\d+)$/m.exec(text)?.[1])
  }
  // A pipe buffers 64 KiB.
  for (let i = 0; i < 250; i += 1) await store.create({})
  await eventually(async () => (await waiting()) > 0, { say: 'lines wait', deadlineMs: 20_000 })
  await rawJoin({ address, state }, 'paris')
  child.kill('SIGTERM')
  const [code] = (await ended) as [number | null]
  t.equal(code, 0, 'it ends by itself')
})
