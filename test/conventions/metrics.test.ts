/** Metric names follow the rules of Prometheus, have one meaning each, and are in the document. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { DECLARED, declaredMetrics, metricsDocument } from '../../scripts/documents/metrics-document.ts'
import { ROOT, sourceFiles } from '../support/source-tree.ts'

const rows = Object.values(DECLARED).flatMap((declare) => declaredMetrics(declare))

t.test('names, units and help follow the rules', async (t) => {
  t.ok(rows.length > 20, 'there are metrics to judge')
  for (const { name, type, help, labels = [] } of rows) {
    t.match(name, /^sealane_[a-z]+(_[a-z0-9]+)+$/, name)
    t.equal(name.endsWith('_total'), type === 'counter', `${name}: _total is for counters, and for them alone`)
    t.notMatch(name, /_(ms|milliseconds|minutes|kib|mib|percent)(_|$)/, `${name}: base units only`)
    t.ok(help.length > 10 && !help.endsWith('  '), `${name} is explained`)
    for (const label of labels) t.match(label, /^[a-z]+(_[a-z]+)*$/, `${name}{${label}}`)
  }
})

t.test('every metric that is made somewhere is declared here', async (t) => {
  const declared = new Set(rows.map(({ name }) => name))
  const sources = sourceFiles(/\.ts$/, [
    'protocol',
    'kubeapi',
    'kernel',
    'runtime',
    'broker',
    'agent',
    'gateway',
    'routeagent',
    'dns',
    'cli',
  ])
  for (const { path, text } of sources) {
    for (const [, name = ''] of text.matchAll(/name: '(sealane_[a-z0-9_]+)'/g)) {
      if (!declared.has(name)) t.fail(`${path}: ${name} is missing in scripts/documents/metrics-document.ts`)
    }
  }
})

t.test('no name is declared twice', async (t) => {
  t.equal(new Set(rows.map(({ name }) => name)).size, rows.length)
})

t.test('docs/metrics.md is what npm run docs:metrics writes', async (t) => {
  t.equal(readFileSync(join(ROOT, 'docs', 'metrics.md'), 'utf8'), metricsDocument())
})
