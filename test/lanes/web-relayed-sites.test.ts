/**
 * Two sites between which no UDP passes reach each other over a relay on port 443: roma calls it through an HTTP proxy,
 * and a TLS-terminating proxy stands in front of a second relay. A copy of a relay, with its key, is another relay. A
 * relay that starts again interrupts calls for a moment, and a member of another clusterset is refused; the broker is
 * away meanwhile.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, existsSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { type Machine, type PlainSite, withPlainSites } from '../netns/support/plain-sites.ts'

const SEALANE = join(import.meta.dirname, '../../bin/sealane')
const PROGRAM = (name: string): string => join(import.meta.dirname, 'support', name)
const SITE = (name: string, uplinks: string, pods: string) => ({
  ...{ name, uplinks, pods, nodes: ['gw1'] },
  spec: '  gateways: [{ node: gw1 }]\n',
})
const SITES = [SITE('paris', '198.51', '10.52'), SITE('roma', '198.52', '10.62')]
const NO_UDP = 'table ip closed { chain forward { type filter hook forward priority 0; ip protocol udp drop; }; }'

/** A program in the namespace of a machine. */
class Program {
  readonly #child: ChildProcess
  said = ''

  constructor(on: Machine, args: readonly string[]) {
    this.#child = spawn('ip', ['netns', 'exec', on.netns.name, ...args], { stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on('data', (data: Buffer) => {
        this.said += data.toString()
      })
  }

  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return
    this.#child.kill(signal)
    await once(this.#child, 'exit')
  }
}

t.setTimeout(290_000)

t.test('sites between which no UDP passes', { skip: netnsMissing() ?? false }, (t) => {
  const folder = temporaryFolder(t)
  return withPlainSites(
    folder,
    SITES,
    async ([paris, roma], { broker, startBroker, internet }) => {
      if (paris === undefined || roma === undefined) throw new Error('sites')
      const ends = [paris, roma] as const
      const programs: Program[] = []
      const run = (on: Machine, args: readonly string[]): Program => {
        const program = new Program(on, args)
        programs.push(program)
        return program
      }
      const relay = (ca: string, more: readonly string[]): Program =>
        run(broker, [SEALANE, 'relay', 'serve', '--ca', ca, '--status-listen', '127.0.0.1:0', ...more])
      const link = (from: PlainSite) => from.gateway('gw1')?.connections[0]
      const crosses = (say: string, host: string, deadlineMs = 60_000): Promise<unknown> =>
        eventually(
          async () =>
            ends.every((site) => link(site)?.state === 'up' && link(site)?.usingRelay === `tcp-443 ${host}`) &&
            (await paris.machine('gw1').pings(roma.machine('gw1').podAddress)),
          { deadlineMs, say },
        )
      const again = async (relays: readonly string[]): Promise<void> => {
        await broker.stop()
        startBroker(relays.flatMap((one) => ['--relay', one]))
      }
      try {
        const ca = join(folder, 'broker', 'ca.crt')
        const own = ['--listen', '0.0.0.0:443', '--state', join(folder, 'relay')]
        let first = relay(ca, own)
        await eventually(() => /#[0-9a-f]{64}/.test(first.said), { deadlineMs: 20_000, say: 'the relay listens' })
        const [pin = ''] = /[0-9a-f]{64}/.exec(first.said) ?? []
        await again([`wss://${broker.address}/#${pin}`])
        // roma has no way out but its proxy: to the broker, and to the relay.
        const proxy = run(broker, [process.execPath, PROGRAM('connect-proxy-program.ts'), broker.address, 'ana:secret'])
        await eventually(() => /proxy listens/.test(proxy.said), { deadlineMs: 20_000, say: 'the proxy listens' })
        await internet.exec('nft', [
          `table ip closed { chain forward { ip saddr ${roma.machine('gw1').address} tcp dport { 443, 7443 } ` +
            `ip daddr ${broker.address} reject; }; }`,
        ])
        roma.machine('gw1').environment = { HTTPS_PROXY: `http://ana:secret@${broker.address}:3128` }
        for (const site of ends) site.up('gw1')
        const startMs = performance.now()
        await crosses('over the relay', broker.address, 90_000)
        t.comment(`the first ping after ${Math.round(performance.now() - startMs)} ms`)
        t.match(proxy.said, /CONNECT [\d.]+:443/, 'the proxy was asked')
        const shown = await paris.machine('gw1').run(['show', 'connections', '--site', paris.file])
        t.match(shown, `tcp-443 ${broker.address}`)

        // A copy of the folder serves elsewhere, with the same key: paris reaches that one alone, and roma both.
        cpSync(join(folder, 'relay'), join(folder, 'copy'), { recursive: true })
        const copy = relay(ca, ['--listen', '0.0.0.0:9443', '--state', join(folder, 'copy')])
        await eventually(() => copy.said.includes('relay listens'), { deadlineMs: 20_000, say: 'the copy listens' })
        await again([`wss://${broker.address}/#${pin}`, `wss://${broker.address}:9443/#${pin}`])
        await internet.exec('nft', [
          'table ip copied { chain forward { type filter hook forward priority 0; ' +
            `ip saddr ${paris.machine('gw1').address} ip daddr ${broker.address} tcp dport 443 reject; }; }`,
        ])
        await crosses('over the copy', `${broker.address}:9443`)
        await internet.exec('nft', ['delete', 'table', 'ip', 'copied'])
        await copy.stop()
        await crosses('over the first one again', broker.address)

        await broker.stop()
        await first.stop()
        first = relay(ca, own)
        await eventually(() => first.said.includes('relay listens'), { deadlineMs: 20_000, say: 'it listens again' })
        const againMs = performance.now()
        await eventually(() => paris.machine('gw1').pings(roma.machine('gw1').podAddress), {
          deadlineMs: 30_000,
          say: 'calls go on',
        })
        const passedMs = Math.round(performance.now() - againMs)
        t.comment(`calls go on ${passedMs} ms after the relay listens again`)

        // A relay that trusts another authority lets nobody in.
        await first.stop()
        const foreign = join(folder, 'other', 'ca.crt')
        const other = run(broker, [
          ...[SEALANE, 'broker', 'serve', '--state', join(folder, 'other'), '--listen', '127.0.0.1:7999'],
          ...['--advertise', '127.0.0.1:7999', '--status-listen', '127.0.0.1:0'],
        ])
        await eventually(() => existsSync(foreign), { deadlineMs: 20_000, say: 'another authority' })
        await other.stop()
        const wrong = relay(foreign, own)
        await eventually(() => ends.every((site) => site.said().includes('RelayForeignClusterset')), {
          deadlineMs: 60_000,
          say: 'both are refused, and say why',
        })
        await wrong.stop()

        // TLS ends at a proxy in front of the relay, with a certificate that the operator pins by its key.
        relay(ca, ['--listen', '127.0.0.1:8443', '--plain'])
        const front = run(broker, [
          process.execPath,
          PROGRAM('tls-front-program.ts'),
          '443',
          '8443',
          join(folder, 'relay', 'relay.key'),
        ])
        await eventually(() => /front listens/.test(front.said), { deadlineMs: 20_000, say: 'the front listens' })
        await crosses('through a proxy that ends TLS', broker.address)
      } catch (error) {
        t.comment(JSON.stringify(ends.map((site) => site.gateway('gw1')?.connections)))
        t.comment(
          [
            ...ends.map((site) => `${site.plan.name} ${site.said()}`),
            ...programs.map(({ said }) => said.slice(-2000)),
            broker.said.slice(-2000),
          ].join('\n'),
        )
        throw error
      } finally {
        await Promise.all(programs.map((program) => program.stop('SIGKILL')))
      }
    },
    { prepare: (internet) => internet.exec('nft', [NO_UDP]) },
  )
})
