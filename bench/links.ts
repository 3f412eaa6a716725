/**
 * `npm run bench:links -- [--json] [--rounds N]`: how soon a link between two gateways is up once they know of each
 * other, how soon the far side reports it as down once nothing gets through, and how soon both report it as up again.
 * This is measured for a gateway with a public address and for one behind NAT, each round with new gateways. Beside the
 * figures are the limits that the settings of the probes imply, a ping between the gateways, and the time of the
 * commands that cut and restore the path.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { GATEWAY_DEFAULTS } from '../gateway/world/config.ts'
import { requirePackages } from '../scripts/install-system-packages.ts'
import { type SiteInit, introduce } from '../test/gateway/support/netns-sites.ts'
import {
  BEHIND_NAT,
  BEHIND_ROUTER,
  MILANO,
  PARIS,
  type Running,
  idOf,
  withTwoIn,
} from '../test/gateway/support/two-gateways.ts'
import { eventually } from '../test/support/eventually.ts'
import { type Netns, netnsMissing } from '../test/support/netns.ts'
import { percentile, progress, round } from './figures.ts'

interface Pair {
  readonly far: SiteInit
  /** Rules of the router between the two. */
  readonly router?: string
}

const PAIRS: Readonly<Record<'public' | 'behindNat', Pair>> = {
  public: { far: PARIS },
  behindNat: { far: BEHIND_NAT, router: BEHIND_ROUTER },
}

/** Nothing gets through, and neither gateway sees that the path is cut. */
const SHUT = 'table ip shut { chain f { type filter hook forward priority filter; policy drop; }; }'

/** A handshake younger than 3 s would itself be a reason to wait. */
const SETTLED_MS = 3500
/**
 * This is longer than the pause between two calls of a far end, so that the path is restored at a random moment of it.
 */
const SHUT_MS = { least: 1000, more: 2500 }
const HANG_MS = 60_000

const { probeIntervalMs, quickProbeMs, downAfterMs } = GATEWAY_DEFAULTS

/**
 * The time that the probes need at least, and the time that they need if the change comes right after an answered one.
 */
const LIMITS = {
  downMs: [downAfterMs, downAfterMs + probeIntervalMs],
  upMs: [quickProbeMs, probeIntervalMs + quickProbeMs],
} as const

/** The times of one round in milliseconds. */
interface Sample {
  readonly pingMs: number
  readonly firstContactMs: number
  readonly downMs: number
  readonly upMs: number
  /** The times of the commands that cut and restore the path. */
  readonly commandMs: readonly [number, number]
}

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { json: { type: 'boolean' }, rounds: { type: 'string', default: '10' } } })
  const rounds = Number(values.rounds)
  if (!(Number.isInteger(rounds) && rounds > 0)) {
    throw new Error(`--rounds ${JSON.stringify(values.rounds)}: expected a whole number above 0`)
  }
  requirePackages('test')
  const missing = netnsMissing()
  if (missing !== undefined) throw new Error(`this benchmark makes network namespaces: it ${missing}`)
  const result = {
    rounds,
    limits: LIMITS,
    public: summary(await measure(PAIRS.public, rounds)),
    behindNat: summary(await measure(PAIRS.behindNat, rounds)),
  }
  const [fromDown, toDown] = LIMITS.downMs
  const [fromUp, toUp] = LIMITS.upMs
  progress(
    result,
    [
      line('public address', result.public),
      line('behind NAT', result.behindNat),
      `the probes allow: down after ${fromDown} to ${toDown} ms, up after ${fromUp} to ${toUp} ms (${rounds} rounds)`,
    ].join('\n'),
  )
}

async function measure(pair: Pair, rounds: number): Promise<Sample[]> {
  const samples: Sample[] = []
  for (let i = 0; i < rounds; i += 1) {
    const folder = mkdtempSync(join(tmpdir(), 'sealane-bench-links-'))
    try {
      samples.push(await withTwoIn(folder, [MILANO, pair.far], (...running) => oneRound(pair, ...running)))
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  }
  return samples
}

async function oneRound(pair: Pair, milano: Running, far: Running, internet: Netns): Promise<Sample> {
  const ends = [milano, far]
  if (pair.router !== undefined) await internet.exec('nft', ['-f', '-'], { input: pair.router })
  await eventually(() => ends.every(isStarted), { deadlineMs: HANG_MS, say: 'both gateways tell where they are' })
  const pingMs = await roundTrip(far, milano)

  const bothUp = (): boolean => stateAt(milano, far) === 'up' && stateAt(far, milano) === 'up'
  const met = msUntil('the link is up', ends, bothUp)
  introduce(milano, far)
  const firstContactMs = await met

  await sleep(SETTLED_MS + Math.random() * probeIntervalMs)
  const down = msUntil('the far side says that it is down', [far], () => stateAt(far, milano) === 'down')
  const cutMs = await timed(() => internet.exec('nft', ['-f', '-'], { input: SHUT }))
  const downMs = await down
  await msUntil('milano says so too', [milano], () => stateAt(milano, far) === 'down')

  await sleep(SHUT_MS.least + Math.random() * SHUT_MS.more)
  const up = msUntil('the link is up again', ends, bothUp)
  const mendMs = await timed(() => internet.exec('nft', ['delete', 'table', 'ip', 'shut']))
  return { pingMs, firstContactMs, downMs, upMs: await up, commandMs: [cutMs, mendMs] }
}

function isStarted({ process }: Running): boolean {
  return process.status !== undefined && [...process.objects.values()].some(({ kind }) => kind === 'Endpoint')
}

function stateAt({ process }: Running, other: Running): string | undefined {
  return process.stateOf(idOf(other))
}

/**
 * The milliseconds from now until the check holds; it is evaluated whenever a gateway writes something. Throws after a
 * minute.
 */
async function msUntil(say: string, ends: readonly Running[], check: () => boolean): Promise<number> {
  const began = performance.now()
  const hangs = new AbortController()
  const isSo = new Promise<number>((resolve) => {
    const look = (): void => {
      if (check()) resolve(performance.now() - began)
    }
    for (const { process } of ends) process.onObject(look)
  })
  const late = sleep(HANG_MS, undefined, { signal: hangs.signal }).then(() => {
    throw new Error(`not within ${HANG_MS} ms: ${say} (${ends.map(({ process }) => process.errors).join('')})`)
  })
  try {
    return await Promise.race([isSo, late])
  } finally {
    late.catch(() => undefined)
    hangs.abort()
  }
}

async function timed(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now()
  await work()
  return performance.now() - began
}

/** The round trip between the two gateways, outside the tunnel. */
async function roundTrip(from: Running, to: Running): Promise<number> {
  const text = await from.site.gateway.exec('ping', ['-n', '-q', '-c', '20', '-i', '0.02', to.site.init.address])
  return Number(/= [\d.]+\/([\d.]+)\//.exec(text)?.[1] ?? NaN)
}

function summary(samples: readonly Sample[]) {
  const spread = (values: readonly number[]) => ({
    p50Ms: round(percentile(values, 0.5), 0),
    p99Ms: round(percentile(values, 0.99), 0),
    maxMs: round(Math.max(...values), 0),
  })
  return {
    firstContact: spread(samples.map(({ firstContactMs }) => firstContactMs)),
    down: spread(samples.map(({ downMs }) => downMs)),
    up: spread(samples.map(({ upMs }) => upMs)),
    command: spread(samples.flatMap(({ commandMs }) => commandMs)),
    pingMs: round(
      percentile(
        samples.map(({ pingMs }) => pingMs),
        0.5,
      ),
      3,
    ),
  }
}

function line(what: string, { firstContact, down, up, command, pingMs }: ReturnType<typeof summary>): string {
  const of = ({ p50Ms, p99Ms }: typeof down): string => `p50 ${p50Ms}, p99 ${p99Ms} ms`
  return (
    `${what}: first contact ${of(firstContact)}; cut to down ${of(down)}; mended to up ${of(up)} ` +
    `(the command that cuts or mends: ${of(command)}; ping ${pingMs} ms)`
  )
}

await main()
