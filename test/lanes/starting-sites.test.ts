/** Six sites start at once on busy processors, and each is asked every second what is wrong: nothing but notices. */
import t from 'tap'
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
}

t.test('sites that start say that they do', { skip: netnsMissing() ?? false }, async (t) => {
  await withPlainSites(temporaryFolder(t), SITES, async (sites) => {
    const began = performance.now()
    const lines = sites.map((site) => new CommandLine(site.machine('gw1').netns))
    try {
      for (const site of sites) site.up('gw1')
      const said = await Promise.all(sites.map((site, i) => untilWell(site, lines[i] as CommandLine, began)))
      t.strictSame(said.flat(), [])
    } finally {
      for (const line of lines) line.close()
    }
  })
})

/** What is worse than a notice, until nothing is found three times in a row. */
async function untilWell(site: PlainSite, line: CommandLine, began: number): Promise<readonly string[]> {
  const worse: string[] = []
  const deadline = performance.now() + 150_000
  for (let quiet = 0; quiet < 3 && performance.now() < deadline; ) {
    const { stdout, code, stderr } = await line.run(['diagnose', '--site', site.file, '-o', 'json'])
    const at = Math.round((performance.now() - began) / 100) / 10
    if (code > 2) { worse.push(`${at} ${site.plan.name}: ${stderr}`); continue }
    const { problems } = JSON.parse(stdout) as { problems: readonly Found[] }
    quiet = problems.length === 0 ? quiet + 1 : 0
    for (const { reason, severity, seen } of problems) console.error(`${at} ${site.plan.name}: ${severity} ${reason}: ${seen}`)
    for (const { reason, severity, seen } of problems) {
      if (severity !== 'notice') worse.push(`${at} ${site.plan.name}: ${severity} ${reason}: ${seen}`)
    }
  }
  return worse
}
