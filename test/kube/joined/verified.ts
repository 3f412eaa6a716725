/**
 * `sealane verify` and `sealane benchmark` between two real clusters: every check passes or says why it is left out,
 * and nothing of the probes is left, also after an interrupt.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Benchmark } from '../../../cli/status/verify/benchmark.ts'
import type { VerifyReport } from '../../../cli/status/verify/verify-report.ts'
import { eventually } from '../../support/eventually.ts'
import type { Site } from '../support/callers.ts'
import type { JoinedClusters } from '../support/joined-clusters.ts'
import { startSealane, trySealane } from '../support/sealane-command.ts'

export async function verified(t: Test, { sites, kubeconfig, directory }: JoinedClusters): Promise<void> {
  const ends = ['--kubeconfig', kubeconfig, '--context', 'c1', '--to-context', 'c2', '--timeout', '3m']
  const two = sites.slice(0, 2)

  await t.test('every check passes in both directions', async (t) => {
    const file = join(directory, 'verify.xml')
    const { code, stdout, stderr } = await trySealane(['verify', ...ends, '-o', 'json', '--junit', file])
    const report = JSON.parse(stdout) as VerifyReport
    const failed = report.checks.filter(({ result }) => result === 'fail')
    t.same(failed, [], `nothing fails:\n${stderr}`)
    t.equal(code, 0)
    const passed = (way: string): readonly string[] =>
      report.checks.filter((row) => row.way === way && row.result === 'pass').map(({ check }) => check)
    for (const way of ['c1 → c2', 'c2 → c1']) {
      t.same(
        passed(way),
        [
          ...['import', 'name', 'srv', 'search', 'tcp', 'udp', 'headless', 'large-tcp', 'large-udp', 'source'],
          ...['pod-to-pod', 'node-to-pod', 'throughput', 'policy-allowed', 'policy-refused'],
        ],
        way,
      )
    }
    t.match(readFileSync(file, 'utf8'), '<testsuite name="c1 → c2"')
    await nothingLeft(t, two)
  })

  await t.test('an interrupt removes everything', async (t) => {
    const running = startSealane(['verify', ...ends])
    await eventually(() => /tcp IPv4: pass/.test(running.said()), { deadlineMs: 240_000, say: 'calls are made' })
    running.process.kill('SIGINT')
    const { code, stderr } = await running.result
    t.equal(code, 3, stderr)
    await nothingLeft(t, two)
  })

  await t.test('the benchmark has figures of both ways', async (t) => {
    const { code, stdout, stderr } = await trySealane([
      'benchmark',
      ...ends,
      '--seconds',
      '1',
      '--pings',
      '200',
      '-o',
      'json',
    ])
    t.equal(code, 0, stderr)
    const { items } = JSON.parse(stdout) as { readonly items: readonly Benchmark[] }
    t.same(
      items.map(({ way, failed }) => [way, failed]),
      [
        ['c1 → c2', []],
        ['inside c1', []],
      ],
    )
    for (const { way, oneStream = 0, latency } of items) {
      t.comment(`${way}: ${Math.round(oneStream / 1e6)} Mbit/s, ${JSON.stringify(latency)}`)
      t.ok(oneStream > 0 && latency !== undefined, way)
    }
    await nothingLeft(t, two)
  })
}

/** Namespaces end in the background, after what is in them. */
async function nothingLeft(t: Test, sites: readonly Site[]): Promise<void> {
  for (const { name, api } of sites) {
    const left = eventually(
      async () => (await api.list('/api/v1/namespaces?labelSelector=sealane.io/probe%3Dverify')).length === 0,
      { deadlineMs: 90_000, say: `nothing of the probes is left in ${name}` },
    )
    t.ok(await left, name)
  }
}
