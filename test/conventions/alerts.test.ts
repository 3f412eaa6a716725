/** Alerts and dashboards use only existing metrics and labels, and every alert has its runbook. */
import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ALERT_SEVERITIES, type Alert } from '../../install/monitoring/alerts.ts'
import { ALERT_GROUPS, RUNBOOKS, ruleFile } from '../../install/monitoring/rule-file.ts'
import { ALL_DASHBOARDS, dashboardText } from '../../install/monitoring/all-dashboards.ts'
import type { GridPlace } from '../../install/monitoring/dashboard.ts'
import { REASON_PARTS, knownReason } from '../../model/reasons/reasons.ts'
import type { ReasonRow } from '../../model/reasons/reason-row.ts'
import { queryProblems } from '../support/promql-names.ts'
import { ROOT } from '../support/source-tree.ts'

const alerts = ALERT_GROUPS.flatMap((group) => group.alerts)
const names = alerts.map(({ name }) => name)
/** Matches each label in the text of an alert. */
const LABEL_OF_TEXT = /\$labels\.(\w+)/g

t.test('names are unique, severities and times are as they may be', async (t) => {
  t.equal(new Set(names).size, names.length)
  for (const { name, severity, for: held, code } of alerts) {
    t.match(name, /^Sealane[A-Z][A-Za-z]+$/)
    t.ok(ALERT_SEVERITIES.includes(severity), name)
    t.match(held, /^(0|[1-9]\d*)[mh]$/, name)
    if (typeof code === 'string') t.ok(knownReason(code), `${name}: ${code}`)
  }
})

t.test('every metric and label of an expression is one of docs/metrics.md', async (t) => {
  for (const { name, expr } of alerts) t.same(queryProblems(expr), [], name)
  t.same(queryProblems('sum by (lane) (sealane_gateway_connection_ups{lane="0"})'), [
    'sealane_gateway_connection_ups: no such metric',
  ])
  t.same(queryProblems('sealane_gateway_connection_up{line="0"} == 0'), [
    'sealane_gateway_connection_up: no label line',
  ])
  t.same(queryProblems('rate(sealane_broker_commit_seconds_bucket[5m])'), [])
  t.same(queryProblems('rate(sealane_broker_commit_seconds[5m])'), [
    'sealane_broker_commit_seconds: a histogram has _bucket, _sum and _count',
  ])
})

t.test('texts name labels that the expression keeps', async (t) => {
  for (const alert of alerts) {
    const kept = keptLabels(alert)
    for (const text of [alert.summary, alert.says]) {
      for (const [, label = ''] of text.matchAll(LABEL_OF_TEXT)) {
        if (kept !== undefined) t.ok(kept.includes(label), `${alert.name}: ${label} of ${kept.join(', ')}`)
      }
    }
    if (typeof alert.code !== 'string' && kept !== undefined) t.ok(kept.includes(alert.code.label), alert.name)
  }
})

/**
 * Returns the labels that an expression with `sum by (…)` or the like keeps; undefined when the expression keeps all.
 */
function keptLabels({ expr }: Alert): readonly string[] | undefined {
  const [, text] = /^(?:time\(\) - )?(?:sum|max|min) by \(([^)]*)\)/.exec(expr) ?? []
  return text?.split(', ')
}

t.test('every alert has a runbook, and every runbook an alert', async (t) => {
  const files = readdirSync(join(ROOT, RUNBOOKS)).filter((file) => file !== 'README.md')
  t.same(files.sort(), names.map((name) => `${name}.md`).sort())
  const list = readFileSync(join(ROOT, RUNBOOKS, 'README.md'), 'utf8')
  for (const { name, code } of alerts) {
    t.match(list, `[${name}](${name}.md)`)
    const text = readFileSync(join(ROOT, RUNBOOKS, `${name}.md`), 'utf8')
    if (typeof code === 'string') t.ok(text.includes(`troubleshooting.md#${code.toLowerCase()}`), name)
  }
  for (const { alert, annotations } of ruleFile().groups.flatMap(({ rules }) => rules)) {
    t.equal(annotations['runbook_url'], `docs/runbooks/${alert}.md`)
    t.match(annotations['description'], /Reason code: (\w+|\{\{ \$labels\.\w+ \}\}) \(docs\/troubleshooting\.md\)\.$/)
  }
})

t.test('dashboards are as Grafana takes them', async (t) => {
  t.same(
    ALL_DASHBOARDS.map(({ uid }) => uid),
    ['sealane-clusterset', 'sealane-lanes', 'sealane-services', 'sealane-calls', 'sealane-control-plane'],
  )
  for (const dashboard of ALL_DASHBOARDS) {
    const { uid } = dashboard
    const model = JSON.parse(dashboardText(dashboard)) as Model
    t.ok(model.title.length > 0 && model.schemaVersion >= 36 && model.panels.length >= 10, uid)
    const [first, ...choices] = model.templating.list
    t.match(first, { name: 'datasource', type: 'datasource', query: 'prometheus' }, uid)
    for (const { query } of choices) t.match(query, /^label_values\(sealane_\w+, \w+\)$/, uid)
    t.equal(new Set(model.panels.map(({ id }) => id)).size, model.panels.length, `${uid}: ids are unique`)
    t.equal(new Set(model.panels.map(({ title }) => title)).size, model.panels.length, `${uid}: titles are unique`)
    t.same(overlaps(model.panels), [], `${uid}: no panel lies on another`)
    for (const { title, type, datasource, targets } of model.panels) {
      t.ok(['timeseries', 'stat', 'table'].includes(type), `${uid}: ${title}`)
      t.match(datasource, { type: 'prometheus', uid: '${datasource}' }, `${uid}: ${title}`)
      t.ok(targets.length > 0, `${uid}: ${title}`)
      t.equal(new Set(targets.map(({ refId }) => refId)).size, targets.length, `${uid}: ${title}`)
      for (const { expr } of targets) {
        t.same(queryProblems(expr), [], `${uid}: ${title}`)
        for (const [, name = ''] of expr.matchAll(/\$(\w+)/g)) {
          t.ok(
            choices.some((choice) => choice.name === name),
            `${uid}: ${title}: $${name} can be chosen`,
          )
        }
      }
    }
  }
})

t.test('panels that lie on each other are seen', async (t) => {
  const at = (title: string, x: number, y: number): Model['panels'][number] => {
    return { title, gridPos: { x, y, w: 12, h: 8 }, id: 1, type: 'stat', datasource: {}, targets: [] }
  }
  t.same(overlaps([at('a', 0, 0), at('b', 12, 0), at('c', 0, 8)]), [])
  t.same(overlaps([at('a', 0, 0), at('b', 11, 0), at('c', 0, 7)]), ['a and b', 'a and c', 'b and c'])
  t.same(overlaps([at('a', 13, 0)]), ['a is too wide'])
})

interface Model {
  readonly title: string
  readonly schemaVersion: number
  readonly templating: { readonly list: readonly { readonly name: string; readonly query: string }[] }
  readonly panels: readonly {
    readonly id: number
    readonly title: string
    readonly type: string
    readonly datasource: object
    readonly gridPos: GridPlace
    readonly targets: readonly { readonly refId: string; readonly expr: string }[]
  }[]
}

function overlaps(panels: Model['panels']): readonly string[] {
  const wide = panels.filter(({ gridPos: { x, w } }) => x < 0 || x + w > 24).map(({ title }) => `${title} is too wide`)
  const pairs = panels.flatMap((a, i) =>
    panels.slice(i + 1).flatMap((b) => (isOver(a.gridPos, b.gridPos) ? [`${a.title} and ${b.title}`] : [])),
  )
  return [...wide, ...pairs]
}

function isOver(a: GridPlace, b: GridPlace): boolean {
  return a.x < b.x + b.w && b.x < a.x + a.w && a.y < b.y + b.h && b.y < a.y + a.h
}

t.test('a place that is an alert is one', async (t) => {
  const rows = Object.values(REASON_PARTS).flatMap((part) => Object.values<ReasonRow>(part))
  const places = rows.flatMap(({ shows }) => shows).filter((place) => place.startsWith('alert '))
  t.ok(places.length > 0)
  for (const place of places) t.ok(names.includes(place.slice('alert '.length) as never), place)
})
