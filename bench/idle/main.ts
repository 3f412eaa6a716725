/**
 * `npm run bench:idle -- [--json] [--seconds N]`: the processor share of a clusterset of three sites while nothing
 * happens, in percent of one processor, by part, for the site that takes most. Links are probed, sessions with the
 * broker are open, and no record changes. Each part is a process here, whereas `sealane up` runs them all in one. The
 * peer in the same run is a Node process that does nothing.
 */
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { siteProcesses } from '../../demo/sites.ts'
import { cpuMs } from '../broker/measured-process.ts'
import { progress, round } from '../figures.ts'
import { type JoinedSites, withJoinedSites } from '../joined-sites.ts'

/** The wait after the last link is up: addresses are published, and new links are probed often for ten seconds. */
const SETTLE_MS = 30_000

interface Measured {
  readonly part: string
  readonly pid: number
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { json: { type: 'boolean' }, seconds: { type: 'string' } } })
  const seconds = Number(values.seconds ?? 300)
  const names = ['milano', 'paris', 'tokyo'] as const
  const percent = await withJoinedSites({ names }, (joined) => measure(joined, seconds))
  const lines = Object.entries(percent).map(([part, share]) => `${part.padEnd(12)} ${share.toFixed(2)} %`)
  progress({ seconds, percent }, lines.join('\n'))
}

async function measure(joined: JoinedSites, seconds: number): Promise<Readonly<Record<string, number>>> {
  const bare = spawn(process.execPath, ['-e', 'setInterval(() => undefined, 60_000)'], { stdio: 'ignore' })
  try {
    await sleep(SETTLE_MS)
    const all = [...(await processes(joined)), { part: 'bareNode', pid: bare.pid ?? 0 }]
    const before = all.map(({ pid }) => cpuMs(pid))
    const began = performance.now()
    await sleep(seconds * 1000)
    const tookMs = performance.now() - began
    const shares = new Map<string, number>()
    for (const [i, { part, pid }] of all.entries()) {
      const share = (100 * (cpuMs(pid) - (before[i] ?? NaN))) / tookMs
      shares.set(part, Math.max(shares.get(part) ?? 0, share))
    }
    return Object.fromEntries([...shares].map(([part, share]) => [part, round(share)]))
  } finally {
    bare.kill('SIGKILL')
  }
}

/** The broker, the parts of each site, and its WireGuard processes if the kernel has no WireGuard. */
async function processes({ lab, rows }: JoinedSites): Promise<readonly Measured[]> {
  const parts = new Map(rows.flatMap((row) => siteProcesses(row).map(({ name, part }) => [name, part] as const)))
  const daemons = lab.daemons().flatMap(({ name, process: { pid } }) => {
    const part = name === 'broker' ? 'broker' : parts.get(name)
    return part === undefined || pid === undefined ? [] : [{ part, pid }]
  })
  const namespaces = [...new Set(rows.flatMap((row) => siteProcesses(row).map(({ namespace }) => namespace)))]
  const tunnels: Measured[] = []
  for (const namespace of namespaces) {
    for (const pid of await lab.pids(namespace)) {
      if (readFileSync(`/proc/${pid}/comm`, 'utf8').trim() === 'wireguard-go')
        tunnels.push({ part: 'wireguard-go', pid })
    }
  }
  return [...daemons, ...tunnels]
}

await main()
