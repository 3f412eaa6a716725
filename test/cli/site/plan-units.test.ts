/** The systemd units of a node: what each part may do, and that systemd itself accepts them. */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import {
  TARGET,
  UNIT_HEADER,
  UNIT_ORDER,
  type UnitPart,
  type UnitsInit,
  pageOf,
  planUnitChanges,
  planUnits,
  unitPathProblem,
} from '../../../cli/site/plan-units.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

const INIT: UnitsInit = {
  program: '/bin/true',
  site: { name: 'milano', file: '/etc/sealane/site.yaml', state: '/etc/sealane/state' },
  node: 'gw.milano',
  parts: ['gateway', 'routeagent', 'agent', 'dns', 'hub'],
  dnsPorts: [53],
  hubPorts: [9474],
  lanePorts: [51820, 51827],
  overlayPort: 4810,
  statusPorts: { agent: 9471, gateway: 9472, routeagent: 9473, dns: 9474, hub: 9475 },
}

/** Returns the values of a key in a unit, in order. */
function valuesOf(text: string, key: string): readonly string[] {
  return [...text.matchAll(new RegExp(`^${key}=(.*)$`, 'gm'))].map(([, value = '']) => value)
}

function textOf(part: UnitPart, init: Partial<UnitsInit> = {}): string {
  return planUnits({ ...INIT, ...init }).find(({ name }) => name === `sealane-${part}.service`)?.text ?? ''
}

t.test('one service for each part, the gateway last, and a target for all', async (t) => {
  const units = planUnits(INIT)
  t.strictSame(
    units.map(({ name }) => name),
    [TARGET, ...UNIT_ORDER.map((part) => `sealane-${part}.service`)],
  )
  t.equal(UNIT_ORDER.at(-1), 'gateway')
  for (const { name, text, page } of units) {
    t.ok(text.startsWith(`${UNIT_HEADER}\n[Unit]\n`), name)
    t.equal(pageOf(text), page, name)
  }
  t.strictSame(valuesOf(textOf('gateway'), 'ExecStart'), [
    '/bin/true up --site /etc/sealane/site.yaml --node gw.milano --component gateway --status-listen 127.0.0.1:9472',
  ])
  t.equal(planUnits({ ...INIT, parts: ['routeagent'] }).length, 2, 'a node that is no gateway')
})

t.test('each part has the capabilities that it uses, and writes to its state alone', async (t) => {
  const rows: readonly (readonly [UnitPart, readonly number[], string])[] = [
    ['agent', [53], ''],
    ['hub', [53], ''],
    ['dns', [53], 'CAP_NET_BIND_SERVICE'],
    ['dns', [5353, 53], 'CAP_NET_BIND_SERVICE'],
    ['dns', [5353], ''],
    ['routeagent', [53], 'CAP_NET_ADMIN'],
    ['gateway', [53], 'CAP_NET_ADMIN'],
  ]
  for (const [part, dnsPorts, want] of rows) {
    const text = textOf(part, { dnsPorts })
    t.strictSame(valuesOf(text, 'CapabilityBoundingSet'), [want], `${part} ${dnsPorts.join(' ')}`)
    t.strictSame(valuesOf(text, 'ReadWritePaths'), ['/etc/sealane/state'], part)
    for (const key of ['NoNewPrivileges', 'ProtectHome', 'PrivateTmp', 'LockPersonality']) {
      t.strictSame(valuesOf(text, key), ['yes'], `${part}: ${key}`)
    }
    t.strictSame(valuesOf(text, 'ProtectSystem'), ['strict'], part)
    t.strictSame(valuesOf(text, 'MemoryDenyWriteExecute'), [], `${part}: V8 compiles at run time`)
  }
  t.strictSame(valuesOf(textOf('gateway'), 'KillMode'), ['process'], 'wireguard-go outlives a restart')
  t.strictSame(valuesOf(textOf('gateway'), 'DeviceAllow'), ['/dev/net/tun rw'])
})

t.test('a port below 1024 of a device takes a capability, in the kernel and in user space', async (t) => {
  const rows: readonly (readonly [UnitPart, Partial<UnitsInit>, string])[] = [
    ['gateway', { lanePorts: [500, 507] }, 'CAP_NET_ADMIN CAP_NET_BIND_SERVICE'],
    ['gateway', { lanePorts: [1017, 1024] }, 'CAP_NET_ADMIN CAP_NET_BIND_SERVICE'],
    ['gateway', { lanePorts: [1024, 1031] }, 'CAP_NET_ADMIN'],
    ['gateway', { overlayPort: 600 }, 'CAP_NET_ADMIN CAP_NET_BIND_SERVICE'],
    ['routeagent', { overlayPort: 600 }, 'CAP_NET_ADMIN CAP_NET_BIND_SERVICE'],
    ['routeagent', { lanePorts: [500, 507] }, 'CAP_NET_ADMIN'],
    ['agent', { lanePorts: [500, 507], overlayPort: 600 }, ''],
  ]
  for (const [part, change, want] of rows) {
    t.strictSame(valuesOf(textOf(part, change), 'CapabilityBoundingSet'), [want], `${part} ${JSON.stringify(change)}`)
  }
})

const analyze = spawnSync('systemd-analyze', ['--version'], { encoding: 'utf8' })
const version = Number(/^systemd (\d+)/.exec(analyze.stdout)?.[1] ?? 0)
/** The first release that looks at unit files without a running systemd (--offline). */
const skip = version < 250 && 'needs systemd-analyze 250 or newer (Debian package systemd)'

/** The most that `systemd-analyze security` may find, in tenths; 96 is a service without any restriction. */
const EXPOSURE: Readonly<Record<UnitPart, number>> = { hub: 25, agent: 25, dns: 25, routeagent: 30, gateway: 30 }

t.test('systemd accepts the units, and finds them closed', { skip }, async (t) => {
  const folder = temporaryFolder(t)
  const units = planUnits(INIT)
  for (const { name, text } of units) writeFileSync(join(folder, name), text)
  const verified = spawnSync(
    'systemd-analyze',
    ['verify', '--man=no', ...units.map(({ name }) => join(folder, name))],
    {
      encoding: 'utf8',
    },
  )
  t.strictSame({ code: verified.status, said: verified.stderr }, { code: 0, said: '' })
  const most = Math.max(...Object.values(EXPOSURE))
  const files = UNIT_ORDER.map((part) => join(folder, `sealane-${part}.service`))
  const args = ['security', '--offline=true', '--no-pager', `--threshold=${most}`, ...files]
  const { status, stdout } = spawnSync('systemd-analyze', args, { encoding: 'utf8' })
  t.equal(status, 0, stdout)
  for (const [part, limit] of Object.entries(EXPOSURE)) {
    const found = new RegExp(`exposure level for sealane-${part}\\.service: ([\\d.]+)`).exec(stdout)?.[1]
    t.ok(Number(found) * 10 <= limit, `${part}: ${found ?? 'not found'}`)
  }
})

t.test('paths that a unit cannot name', async (t) => {
  for (const path of ['/etc/sealane/site.yaml', '/srv/a-b_c/1.2@x', '/homes/a', '/tmpfs', '/']) {
    t.equal(unitPathProblem(path), undefined, path)
  }
  for (const path of [
    '/srv/a b',
    '/srv/50%',
    '/srv/$HOME',
    '/srv/a"b',
    '/srv/a\nUser=x',
    '/srv/ü',
    'relative',
    '/srv/a\\b',
  ]) {
    t.match(unitPathProblem(path), /^expected a path of letters/, path)
  }
  for (const path of ['/home', '/home/a/site.yaml', '/root', '/tmp/x', '/var/tmp/x', '/run/user/0/x']) {
    t.match(unitPathProblem(path), /^expected a path outside of \/home/, path)
  }
  fc.assert(
    fc.property(fc.string(), (text) => {
      const path = `/srv/${text}`
      if (unitPathProblem(path) !== undefined) return
      const init = { ...INIT, site: { ...INIT.site, file: path, state: path } }
      // Whatever the path is, it adds no line and no word to a unit.
      const [line = ''] = valuesOf(textOf('agent', init), 'ExecStart')
      t.equal(line.split(' ').length, 10)
      t.equal(textOf('agent', init).split('\n').length, textOf('agent').split('\n').length)
    }),
  )
})

t.test('the difference to what is installed', async (t) => {
  const units = planUnits(INIT)
  const installed = new Map(units.map(({ name, text }) => [name, text]))
  t.strictSame(planUnitChanges(units, installed), { changed: [], removed: [], text: '' }, 'none')
  const fresh = planUnitChanges(units, new Map())
  t.strictSame(fresh.changed, units)
  t.equal(fresh.text, units.map(({ name }) => `${name}: is new\n`).join(''))
  const other = planUnits({ ...INIT, dnsPorts: [5353], parts: ['hub', 'agent', 'dns', 'routeagent'] })
  const { changed, removed, text } = planUnitChanges(other, installed)
  t.strictSame([changed.map(({ name }) => name), removed], [['sealane-dns.service'], ['sealane-gateway.service']])
  t.equal(
    text,
    'sealane-dns.service: changes\n  - CapabilityBoundingSet=CAP_NET_BIND_SERVICE\n  + CapabilityBoundingSet=\n' +
      'sealane-gateway.service: is removed\n',
  )
})

t.test('after a change nothing is left to change', async (t) => {
  const inits = fc.record({
    node: fc.constantFrom('gw', 'w1'),
    dnsPorts: fc.subarray([53, 5353], { minLength: 1 }),
    parts: fc.subarray([...UNIT_ORDER], { minLength: 1 }),
  })
  fc.assert(
    fc.property(inits, inits, (before, after) => {
      const installed = new Map(planUnits({ ...INIT, ...before }).map(({ name, text }) => [name, text]))
      const wanted = planUnits({ ...INIT, ...after })
      const { changed, removed, text } = planUnitChanges(wanted, installed)
      for (const { name, text: content } of changed) installed.set(name, content)
      for (const name of removed) installed.delete(name)
      t.strictSame(planUnitChanges(wanted, installed).text, '')
      t.equal(text === '', changed.length + removed.length === 0)
    }),
  )
})
