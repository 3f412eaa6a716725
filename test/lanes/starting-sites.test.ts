/**
 * Six sites start at once on busy processors, and each is diagnosed every second: nothing worse than notices is found.
 */
import t from 'tap'
import { eventually } from '../support/eventually.ts'
import { netnsMissing } from '../support/netns.ts'
import { temporaryFolder } from '../support/temporary-folder.ts'
import { CommandLine } from '../netns/support/command-line.ts'
import { type PlainSite, type SitePlan, withPlainSites } from '../netns/support/plain-sites.ts'

t.setTimeout(280_000)

const SITES: readonly SitePlan[] = Array.from({ length: 6 }, (_, n) => ({
  ...{ name: `site${n}`, uplinks: `198.5${n}`, pods: `10.${n + 1}2`, nodes: ['gw1'] },
  spec: `  gateways: [{ node: gw1, publicAddress: 198.5${n}.11.2 }]\n  dns: { listen: ['10.${n + 1}2.1.1:53'] }\n`,
}))

interface Found {
  readonly reason: string
  readonly severity: string
  readonly seen: string
  readonly subject: { readonly kind: string; readonly name: string }
}

t.test('sites that start say that they do', { skip: netnsMissing() ?? false }, async (t) => {
  await withPlainSites(temporaryFolder(t), SITES, async (sites) => {
    const lines = sites.map((site) => new CommandLine(site.machine('gw1').netns))
    try {
      for (const site of sites) site.up('gw1')
      const said = await Promise.all(sites.map((site, i) => worseThanNotices(site, lines[i] as CommandLine)))
      t.strictSame(said.flat(), [])
    } catch (error) {
      for (const site of sites) t.comment(site.said())
      throw error
    } finally {
      for (const line of lines) line.close()
    }
  })
})

/**
 * The findings worse than notices until nothing is found any more. Before the process first answers, it counts as not
 * running.
 */
async function worseThanNotices(site: PlainSite, line: CommandLine): Promise<readonly string[]> {
  const worse: string[] = []
  let answers = false
  const began = performance.now()
  const isWell = async (): Promise<boolean> => {
    const { stdout, code, stderr } = await line.run(['diagnose', '--site', site.file, '-o', 'json'])
    if (code > 2) throw new Error(stderr)
    const { problems: found } = JSON.parse(stdout) as { problems: readonly Found[] }
    // These sites expose all pods (plain-sites.ts).
    const problems = found.filter(({ reason }) => reason !== 'AllPodsExposed')
    answers ||= !problems.some(({ reason, subject: { kind } }) => {
      return reason === 'SiteNotStarted' || (NO_ANSWER.includes(reason) && kind === 'Page')
    })
    const at = ((performance.now() - began) / 1000).toFixed(1)
    for (const { reason, severity, seen, subject } of answers ? problems : []) {
      if (severity !== 'notice') worse.push(`${at} s ${site.plan.name}: ${severity} ${reason} ${subject.name}: ${seen}`)
    }
    return answers && problems.length === 0
  }
  await eventually(isWell, { deadlineMs: 150_000, intervalMs: 1000, say: `${site.plan.name} is well` })
  return worse
}

const NO_ANSWER: readonly string[] = ['NothingRuns', 'NotAnswered']
