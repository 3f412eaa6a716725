/** Each alert, as promtool evaluates it: on series that must make it fire, and on series that must not. */
import { spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { ALERT_GROUPS, type Rule, ruleFile } from '../../../install/monitoring/rule-file.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { ALERT_CASES, AT_MINUTE, type Series } from './alert-cases.ts'
import { promtoolMissing } from './promtool.ts'

const alerts = ALERT_GROUPS.flatMap((group) => group.alerts)

t.test('every alert has a case, and every case an alert', async (t) => {
  t.ok(alerts.length >= 30, `${alerts.length} alerts`)
  t.same(Object.keys(ALERT_CASES).sort(), alerts.map(({ name }) => name).sort())
})

t.test('alerts fire when they have to, and not otherwise', { skip: promtoolMissing() ?? false }, async (t) => {
  const folder = temporaryFolder(t)
  // One process checks all files. Each file has one rule, because promtool evaluates all rules of a file for each test.
  const files = ruleFile().groups.flatMap(({ rules }) => rules.map((rule) => writeCase(folder, rule)))
  const failed = failures(files)
  for (const { name } of alerts) {
    t.notOk(failed.asItIs.has(name), `${name} fires, and is quiet`)
    // A test that cannot fail proves nothing, so the reversed expectations must fail.
    t.equal(failed.reversed.get(name), 2, `${name}: the other way round is seen to be wrong`)
  }
  t.same(failed.other, [], 'promtool complains about nothing else')
})

const REVERSED = 'vector(0) + '

/** Writes the file with the tests of a rule: that it fires, that it is quiet, and the opposite of both. */
function writeCase(folder: string, rule: Rule): string {
  const { alert } = rule
  const { fires, quiet, atMinute = AT_MINUTE } = ALERT_CASES[alert] ?? { fires: [], quiet: [] }
  const rules = `${alert}.rules.yaml`
  writeFileSync(join(folder, rules), JSON.stringify({ groups: [{ name: alert, rules: [rule] }] }))
  const tests = [testOf(alert, fires, { atMinute, firing: true }), testOf(alert, quiet, { atMinute, firing: false })]
  const file = join(folder, `${alert}.json`)
  writeFileSync(file, JSON.stringify({ rule_files: [rules], evaluation_interval: '1m', tests }))
  return file
}

function testOf(
  alert: string,
  input: readonly Series[],
  { atMinute, firing }: { readonly atMinute: number; readonly firing: boolean },
): object {
  const expr = `(count(ALERTS{alertname="${alert}", alertstate="firing"}) > bool 0 or vector(0))`
  const value = firing ? 1 : 0
  const expected = { eval_time: `${atMinute}m` }
  return {
    interval: '1m',
    input_series: input.map(([series, values]) => ({ series, values })),
    promql_expr_test: [
      { ...expected, expr, exp_samples: [{ labels: '{}', value }] },
      { ...expected, expr: REVERSED + expr, exp_samples: [{ labels: '{}', value: 1 - value }] },
    ],
  }
}

interface Failures {
  readonly asItIs: ReadonlySet<string>
  /** How many tests of each alert failed. */
  readonly reversed: ReadonlyMap<string, number>
  readonly other: readonly string[]
}

function failures(files: readonly string[]): Failures {
  const { stdout, stderr } = spawnSync('promtool', ['test', 'rules', ...files], { encoding: 'utf8', timeout: 60_000 })
  const said = `${stdout}${stderr}`
  const reversed = new Map<string, number>()
  const asItIs = new Set<string>()
  for (const [, prefix = '', name = ''] of said.matchAll(/expr: "(.*?)\(count\(ALERTS\{alertname=\\?"(\w+)/g)) {
    if (prefix === REVERSED) reversed.set(name, (reversed.get(name) ?? 0) + 1)
    else asItIs.add(name)
  }
  const other = said.split('\n').filter((line) => /error/i.test(line))
  return { asItIs, reversed, other: reversed.size === 0 ? [said] : other }
}
