/**
 * Every alert fires once in a real Prometheus: it scrapes a process whose metrics go bad, and evaluates the rules, with
 * a third of a second for each minute. The series of each alert are those of install/monitoring/alert-cases.ts.
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import t from 'tap'
import { ALERT_SEVERITIES } from '../../install/monitoring/alerts.ts'
import { ruleFile } from '../../install/monitoring/rule-file.ts'
import { ALERT_CASES, AT_MINUTE, type AlertCase, type Series } from '../install/monitoring/alert-cases.ts'
import { eventually } from '../support/eventually.ts'
import { freePort } from '../support/free-port.ts'
import { type FiringAlert, Prometheus, prometheusMissing } from '../support/prometheus/prometheus.ts'
import { quickened } from '../support/prometheus/quickened.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'

t.setTimeout(120_000)

const MS_PER_MINUTE = 300
/** Earlier minutes of a case are of no use here, except for alerts that compare with a much earlier time. */
const BEFORE_MINUTES = 25
/** Prometheus makes this series itself. */
const PART_DOWN = 'SealanePartDown'

/** Samples in promtool's notation, one a minute: `1x3 0+2x2 _x2` are 1 1 1 1 0 2 4 and two missing ones. */
function samplesOf(values: string): readonly (number | undefined)[] {
  return values.split(' ').flatMap((part) => {
    const [, first = '0', step = '0', times = '0'] = /^(_|-?[\d.]+)(?:\+([\d.]+))?(?:x(\d+))?$/.exec(part) ?? []
    const sample = (i: number): number | undefined => (first === '_' ? undefined : Number(first) + Number(step) * i)
    // `x3` repeats a value three more times; for a missing sample it means three in total.
    return Array.from({ length: Number(times) + (first === '_' ? 0 : 1) }, (_, i) => sample(i))
  })
}

class Played {
  readonly #lines: readonly {
    readonly name: string
    readonly samples: readonly (number | undefined)[]
    readonly isTime: boolean
  }[]
  readonly #from: number

  constructor(alert: string, { fires, atMinute = AT_MINUTE }: AlertCase) {
    this.#from = atMinute - (alert === 'SealaneLinkSlow' ? 60 : BEFORE_MINUTES)
    this.#lines = fires.map(([name, values]: Series) => ({
      name: ofItsOwn(name, alert),
      samples: samplesOf(values),
      isTime: name.includes('_timestamp_seconds'),
    }))
  }

  /** The metrics as a process shows them after this time. */
  text(elapsedMs: number, nowMs: number): string {
    const minute = this.#from + elapsedMs / MS_PER_MINUTE
    const lines = this.#lines.map(({ name, samples, isTime }) => {
      const value = samples[Math.min(Math.floor(minute), samples.length - 1)]
      if (value === undefined) return ''
      // In a case, time begins at minute 0.
      return `${name} ${isTime ? value - Math.floor(minute) * 60 + nowMs / 1000 : value}\n`
    })
    return lines.join('')
  }
}

/** Cases share series, so each alert gets a member and jobs of its own. */
function ofItsOwn(series: string, alert: string): string {
  return series.replace('job="', `job="${alert}-`).replace('member="milano"', `member="${alert}"`)
}

t.test('samples are those of promtool', async (t) => {
  t.same(samplesOf('1x3 0+2x2 7 _x2 3'), [1, 1, 1, 1, 0, 2, 4, 7, undefined, undefined, 3])
})

t.test('every alert fires', { skip: prometheusMissing() ?? false }, async (t) => {
  const names = Object.keys(ALERT_CASES)
  const cases = Object.entries(ALERT_CASES).filter(([alert]) => alert !== PART_DOWN)
  const played = cases.map(([alert, one]) => new Played(alert, one))
  // The time counts from the first scrape, so that Prometheus sees the samples before, however long it takes to start.
  let beginMs: number | undefined
  const server = createServer((_, response) => {
    beginMs ??= performance.now()
    const [elapsedMs, nowMs] = [performance.now() - beginMs, Date.now()]
    response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4' })
    response.end(played.map((one) => one.text(elapsedMs, nowMs)).join(''))
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  const at = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const prometheus = await Prometheus.start({
    folder: temporaryFolder(t),
    listen: `127.0.0.1:${await freePort()}`,
    rules: quickened(ruleFile(), MS_PER_MINUTE),
    intervalMs: MS_PER_MINUTE,
    jobs: [
      { name: 'cases', targets: [at], honorLabels: true },
      // No process listens on this port.
      { name: 'sealane-agent', targets: [`127.0.0.1:${await freePort()}`] },
    ],
  })
  t.teardown(() => prometheus.stop())
  const fired = new Map<string, FiringAlert>()
  const all = async (): Promise<boolean> => {
    for (const alert of await prometheus.alerts()) {
      const name = alert.labels['alertname'] ?? ''
      const isOwn =
        name === PART_DOWN ||
        Object.values(alert.labels).some((value) => value.startsWith(name) && value !== name) ||
        alert.labels['member'] === name
      if (alert.state === 'firing' && isOwn) fired.set(name, alert)
    }
    return fired.size === names.length
  }
  await eventually(all, { deadlineMs: 80_000, intervalMs: 500 }).catch(() => undefined)
  t.same([...fired.keys()].sort(), [...names].sort())
  for (const [name, { labels, annotations }] of fired) {
    t.ok(ALERT_SEVERITIES.includes(labels['severity'] as never), name)
    for (const text of Object.values(annotations)) t.notMatch(text, /no value|error|\{\{|NaN/i, name)
    t.match(annotations['description'], /Reason code: [\w-]+ /, name)
    t.equal(annotations['runbook_url'], `docs/runbooks/${name}.md`)
  }
  // A Prometheus that gets no processor time evaluates twice at the same time, and drops the second result.
  const warned = prometheus.said.split('\n').filter((line) => line !== '' && !line.includes('same timestamp'))
  t.same(warned, [], 'nothing else that Prometheus warns of')
})
