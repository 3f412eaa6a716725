/** `sealane site install`, `restart` and `uninstall` with a systemctl that writes down how it was called. */
import { chmodSync, existsSync, mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { type Server, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { installedPages, ownProgram } from '../../../cli/site/unit-files.ts'
import { type ServiceHost, installUnits, restartUnits, uninstallUnits } from '../../../cli/site/units.ts'
import { SystemClock } from '../../../reconcile/reconcile.ts'
import { UserError } from '../../../runtime/runtime.ts'
import { failure } from '../../support/failure.ts'
import { ROOT } from '../../support/source-tree.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { LoopbackBroker } from '../loopback-broker.ts'
import { runCli } from '../run-cli.ts'
import { SiteFolder, nodeYaml } from '../site-folder.ts'

const PARTS = ['agent', 'dns', 'routeagent', 'gateway'] as const
type Part = (typeof PARTS)[number]

/** Gets a part's status page to answer while the machine sleeps, as systemd starts a process meanwhile. */
class WaitingClock extends SystemClock {
  onSleep: () => Promise<void> = () => Promise.resolve()
  override async sleep(): Promise<void> {
    await this.onSleep()
  }
}

interface Machine extends ServiceHost {
  readonly clock: WaitingClock
}

class FakeSystemd {
  readonly host: Machine
  readonly #folder: string
  readonly #pages = new Map<Part, Server>()
  /** What a part's page answers once its unit was restarted. */
  readonly answers = new Map<Part, number>()

  private constructor(t: Test, ports: Record<Part, number>) {
    this.#folder = temporaryFolder(t)
    const program = join(this.#folder, 'systemctl')
    writeFileSync(
      program,
      '#!/bin/sh\nd=${0%/*}\necho "$*" >>"$d/calls"\nfails=; [ ! -e "$d/fails" ] || read -r fails <"$d/fails" || :\nif [ -n "$fails" ] && [ "$*" = "$fails" ]; then echo "Job failed." >&2; exit 1; fi\n' +
        'case "$*" in *is-active*) for a; do :; done; [ ! -e "$d/$a.stopped" ] || exit 3;; esac\n',
    )
    chmodSync(program, 0o755)
    mkdirSync(join(this.#folder, 'booted'))
    const clock = new WaitingClock()
    clock.onSleep = () => this.#start(ports)
    this.host = {
      units: join(this.#folder, 'units'),
      booted: join(this.#folder, 'booted'),
      env: { PATH: `${this.#folder}:/usr/bin:/bin` },
      ...{ clock, statusPorts: { ...ports, hub: 0 }, hidden: ['/home'] },
    }
    t.teardown(() => {
      for (const page of this.#pages.values()) page.close()
    })
  }

  static async start(t: Test): Promise<FakeSystemd> {
    const servers = PARTS.map(() => createServer().listen(0, '127.0.0.1'))
    await Promise.all(servers.map((one) => new Promise((resolve) => one.once('listening', resolve))))
    const ports = servers.map((one) => (one.address() as AddressInfo).port)
    await Promise.all(servers.map((one) => new Promise((resolve) => one.close(resolve))))
    return new FakeSystemd(t, Object.fromEntries(PARTS.map((part, i) => [part, ports[i] ?? 0])) as Record<Part, number>)
  }

  /** Starts the page of each part whose unit was restarted. */
  async #start(ports: Record<Part, number>): Promise<void> {
    for (const part of PARTS) {
      if (this.#pages.has(part) || !this.calls(false).includes(`restart sealane-${part}.service`)) continue
      const page = createServer((_request, response) => {
        const code = this.answers.get(part) ?? 200
        response.writeHead(code).end(code === 200 ? 'ready\n' : 'broker: no connection\nlanes: none\n')
      })
      this.#pages.set(part, page)
      await new Promise((resolve) => page.listen(ports[part], '127.0.0.1', () => resolve(undefined)))
    }
  }

  /** The calls since the last time, without the flags that all have. */
  calls(forget = true): readonly string[] {
    const path = join(this.#folder, 'calls')
    const text = existsSync(path) ? readFileSync(path, 'utf8') : ''
    if (forget) writeFileSync(path, '')
    return text.split('\n').flatMap((line) => (line === '' ? [] : line.replace(/^--no-ask-password (--quiet )?/, '')))
  }

  fail(call: string): void {
    writeFileSync(join(this.#folder, 'fails'), call === '' ? '' : `--no-ask-password ${call}`)
  }

  stop(unit: string): void {
    writeFileSync(join(this.#folder, `${unit}.stopped`), '')
  }

  files(): readonly string[] {
    return existsSync(this.host.units) ? readdirSync(this.host.units).sort() : []
  }
}

class Recorder {
  stdout = ''
  stderr = ''
  readonly context = {
    signal: new AbortController().signal,
    output: {
      answer: (text: string) => void (this.stdout += text),
      remark: (text: string) => void (this.stderr += text),
    },
  }
}

const ALL = ['sealane-agent.service', 'sealane-dns.service', 'sealane-gateway.service', 'sealane-routeagent.service']
const TARGET = 'sealane.target'

function initFor(site: SiteFolder, more: { node?: string; dryRun?: boolean; timeoutMs?: number } = {}) {
  return { site: site.file, node: 'gw', program: '/usr/bin/sealane', dryRun: false, timeoutMs: 5000, ...more }
}

async function joinedSite(t: Test): Promise<SiteFolder> {
  const broker = await LoopbackBroker.start(t)
  const site = new SiteFolder(t)
  const { code, stderr } = await runCli(['join', '--site', site.file, '--token', await broker.token()])
  t.equal(code, 0, stderr)
  return site
}

t.test('install, the same again, a change, a restart, uninstall', async (t) => {
  const site = await joinedSite(t)
  const systemd = await FakeSystemd.start(t)
  const first = new Recorder()
  await installUnits(initFor(site), first.context, systemd.host)
  t.strictSame(systemd.files(), [...ALL, TARGET])
  const oneByOne = PARTS.flatMap((part) => {
    const unit = `sealane-${part}.service`
    return ['daemon-reload', `enable ${unit}`, `restart ${unit}`]
  })
  const units = PARTS.map((part) => `sealane-${part}.service`).join(' ')
  t.strictSame(systemd.calls(), [
    ...['daemon-reload', `enable ${TARGET}`],
    ...oneByOne,
    ...[`enable ${TARGET} ${units}`, `start ${TARGET}`],
  ])
  t.match(first.stdout, /^the units of node gw of site milano are installed: /)
  t.match(first.stderr, /sealane-agent\.service is ready\nsealane-dns\.service is ready\n/)

  const again = new Recorder()
  await installUnits(initFor(site), again.context, systemd.host)
  t.strictSame(systemd.calls(), [`enable ${TARGET} ${units}`, `start ${TARGET}`], 'nothing is written or restarted')
  t.strictSame([again.stdout, again.stderr], ['the units of node gw of site milano are installed already\n', ''])

  site.write('site.yaml', site.read('site.yaml').replace('10.42.0.1:53', '10.42.0.1:5353'))
  const changed = new Recorder()
  await installUnits(initFor(site), changed.context, systemd.host)
  const dns = 'sealane-dns.service'
  t.strictSame(systemd.calls().slice(0, -2), ['daemon-reload', `enable ${dns}`, `restart ${dns}`])
  t.equal(
    changed.stderr,
    `${dns}: changes\n  - CapabilityBoundingSet=CAP_NET_BIND_SERVICE\n  + CapabilityBoundingSet=\n${dns} is ready\n`,
  )

  systemd.stop(dns)
  const restarted = new Recorder()
  await restartUnits({ timeoutMs: 5000 }, restarted.context, systemd.host)
  const running = ['agent', 'routeagent', 'gateway'].map((part) => `sealane-${part}.service`)
  t.strictSame(
    systemd.calls().filter((call) => call.startsWith('restart')),
    running.map((unit) => `restart ${unit}`),
    'a stopped part stays stopped',
  )
  t.match(restarted.stderr, `${dns} does not run and was left as it is\n`)

  t.equal(installedPages(systemd.host.units).length, 4, 'status and diagnose ask all parts')
  site.write('state/mine', 'x')
  const gone = new Recorder()
  await uninstallUnits(gone.context, systemd.host)
  t.strictSame(systemd.calls()[0], `disable --now ${TARGET} ${units}`)
  t.strictSame(systemd.files(), [])
  t.ok(site.has('state/mine'), 'the state stays')
  await uninstallUnits(gone.context, systemd.host)
  t.match(gone.stdout, /\nno units of Sealane are installed\n$/)
  t.strictSame(systemd.calls(), [])
})

t.test('a part that is not ready ends the round, and the next install goes on there', async (t) => {
  const site = await joinedSite(t)
  const systemd = await FakeSystemd.start(t)
  systemd.answers.set('dns', 503)
  const error = await failure(installUnits(initFor(site, { timeoutMs: 0 }), new Recorder().context, systemd.host))
  t.match(error, { message: 'sealane-agent.service is not ready after 0s: nothing listens' })
  const error2 = await failure(installUnits(initFor(site, { timeoutMs: 300 }), new Recorder().context, systemd.host))
  t.match(error2, {
    exitCode: 1,
    message: /^sealane-dns\.service is not ready after 300ms: broker: no connection; lanes: none$/,
    hint: /journalctl --unit sealane-dns\.service$/,
  })
  t.strictSame(systemd.files(), ['sealane-agent.service', 'sealane-dns.service', TARGET])
  t.notOk(systemd.calls().includes('restart sealane-gateway.service'))
  systemd.answers.clear()
  await installUnits(initFor(site), new Recorder().context, systemd.host)
  t.strictSame(systemd.files(), [...ALL, TARGET])

  systemd.answers.set('agent', 503)
  const stuck = await failure(restartUnits({ timeoutMs: 0 }, new Recorder().context, systemd.host))
  t.match(stuck, { message: /^sealane-agent\.service is not ready after 0s: / })
})

t.test('a node that is no gateway, and a site that has not joined', async (t) => {
  const site = new SiteFolder(t)
  site.write('objects/w1.yaml', nodeYaml('w1', '192.168.1.20'))
  const systemd = await FakeSystemd.start(t)
  const said = new Recorder()
  await installUnits(initFor(site, { node: 'w1' }), said.context, systemd.host)
  t.strictSame(systemd.files(), ['sealane-routeagent.service', TARGET])
  t.match(said.stderr, `has not joined yet`)
  t.match(said.stderr, `sealane join --site ${site.file} --token-file token.txt\n`)
  t.equal(installedPages(systemd.host.units).length, 1)
  await installUnits(initFor(site), said.context, systemd.host)
  t.strictSame(systemd.files(), [...ALL, TARGET], 'it becomes a gateway')
  systemd.calls()
  await installUnits(initFor(site, { node: 'w1' }), said.context, systemd.host)
  t.equal(systemd.calls()[0], 'disable --now sealane-agent.service sealane-dns.service sealane-gateway.service')
  t.strictSame(systemd.files(), ['sealane-routeagent.service', TARGET], 'and is none again')
})

t.test('what is refused before any change', async (t) => {
  const site = new SiteFolder(t)
  const systemd = await FakeSystemd.start(t)
  const { host } = systemd
  const refused = async (init: Parameters<typeof installUnits>[0], on: ServiceHost = host): Promise<Error> => {
    const error = await failure(installUnits(init, new Recorder().context, on))
    t.ok(error instanceof UserError, String(error))
    return error
  }
  const init = initFor(site)
  const missing = join(host.units, 'booted')
  t.match(await refused(init, { ...host, booted: missing }), {
    exitCode: 1,
    message: `site install: systemd does not run here: ${missing} does not exist`,
    hint: /--dry-run$/,
  })
  t.match(await refused({ ...init, node: 'gw2' }), { exitCode: 2, message: /one of gw; did you mean gw\?$/ })
  t.match(await refused(init, { ...host, hidden: [site.folder] }), {
    exitCode: 2,
    message: /^the site file: .* which are hidden from services$/,
  })
  t.match(await refused({ ...init, program: '/home/a/sealane/bin/sealane' }), {
    exitCode: 2,
    message: /^the program: /,
    hint: /Debian package/,
  })
  t.match(await refused({ ...init, site: site.path('none.yaml') }), { exitCode: 2, message: /no such file/ })
  site.write(
    'kube.yaml',
    'apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: { name: c1 }\nspec: { podCIDRs: [10.1.0.0/16], kubernetes: {} }\n',
  )
  t.match(await refused({ ...init, site: site.path('kube.yaml') }), {
    exitCode: 2,
    message: /without spec\.kubernetes/,
  })

  const page = createServer((_request, response) => response.end('ready')).listen(host.statusPorts.gateway, '127.0.0.1')
  await new Promise((resolve) => page.once('listening', resolve))
  t.match(await refused(init), {
    message: `127.0.0.1:${host.statusPorts.gateway}, the status page of sealane-gateway.service, is in use`,
  })
  page.closeAllConnections()
  await new Promise((resolve) => page.close(resolve))

  mkdirSync(host.units)
  const rows: readonly (readonly [string, (path: string) => void])[] = [
    ['sealane-dns.service', (path) => writeFileSync(path, '[Unit]\nDescription=mine\n')],
    ['sealane.target', (path) => writeFileSync(path, '')],
    ['sealane-gateway.service', (path) => symlinkSync('/dev/null', path)],
    ['sealane-agent.service', (path) => mkdirSync(path)],
  ]
  for (const [name, make] of rows) {
    const units = join(host.units, name)
    mkdirSync(units)
    make(join(units, name))
    const other = { ...host, units }
    const before = readdirSync(units)
    t.match(await refused(init, other), {
      message: `${join(units, name)} was not written by Sealane, and nothing was changed`,
    })
    const error = await failure(uninstallUnits(new Recorder().context, other))
    t.match(error, { message: /was not written by Sealane/ })
    t.strictSame(readdirSync(units), before, name)
  }
  t.strictSame(systemd.calls(), [], 'systemctl was never called')
  t.equal(site.has('state'), false)
})

t.test('--dry-run prints the units, also without systemd', async (t) => {
  const site = new SiteFolder(t)
  const { host } = await FakeSystemd.start(t)
  const said = new Recorder()
  await installUnits(initFor(site, { dryRun: true }), said.context, { ...host, booted: '/none' })
  for (const name of [...ALL, TARGET]) {
    t.match(said.stdout, `# ${join(host.units, name)}\n`)
    t.match(said.stderr, `${name}: is new\n`)
  }
  t.equal(existsSync(host.units), false)
  t.equal(site.has('state'), false)
})

t.test('what systemctl says is passed on', async (t) => {
  const site = new SiteFolder(t)
  const systemd = await FakeSystemd.start(t)
  systemd.fail('restart sealane-agent.service')
  const error = await failure(installUnits(initFor(site), new Recorder().context, systemd.host))
  t.match(error, { exitCode: 1, message: 'systemctl restart sealane-agent.service ended with 1: Job failed.' })
  const none = { ...systemd.host, env: { PATH: '/nonexistent' } }
  t.match(await failure(installUnits(initFor(site), new Recorder().context, none)), { message: /^systemctl / })
})

t.test('the program of a unit is the one that runs', async (t) => {
  t.equal(ownProgram(join(ROOT, 'cli/main.ts')), join(ROOT, 'bin/sealane'))
  const { code, stderr } = await runCli(['site', 'install', '--site', 'none.yaml'])
  t.match({ code, stderr }, { code: 2, stderr: /--node/ })
})
