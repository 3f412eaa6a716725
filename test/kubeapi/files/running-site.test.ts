/** A site file that was edited to something wrong: what a part that starts takes instead, and when it must not start. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import t from 'tap'
import { keepSiteText, planRunningSite, readRunningSite } from '../../../kubeapi/files/running-site.ts'
import { parseSiteDocument } from '../../../kubeapi/files/site-file.ts'
import { gatewayProblem, withGatewayLabels } from '../../../model/lanes/gateway-node.ts'
import { CapturingLogger } from '../../../runtime/logging/capturing-logger.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

function text(gateways: string, rest = 'podCIDRs: [10.42.0.0/16]'): string {
  return `apiVersion: sealane.io/v1alpha1\nkind: Site\nmetadata: { name: milano }\nspec:\n  ${rest}\n  gateways: ${gateways}\n`
}

const GOOD = text('[{ node: gw1, publicAddress: 192.0.2.1 }, { node: gw2 }]')

/** `gw1 gw2!`: a node with `!` cannot be a gateway. Or `refused`. */
function running(content: string, kept?: string): string {
  try {
    const { config, from } = planRunningSite('/s/site.yaml', content, kept)
    const shown = config.gateways.map(
      ({ node }) => `${node}${problemOf(config.gateways, node) === undefined ? '' : '!'}`,
    )
    return `${from}: ${shown.join(' ')}`
  } catch (error) {
    return `refused: ${(error as Error).message}`
  }
}

function problemOf(gateways: Parameters<typeof withGatewayLabels>[1], name: string): string | undefined {
  return gatewayProblem(withGatewayLabels({ apiVersion: 'v1', kind: 'Node', metadata: { name } }, gateways))?.message
}

const ROWS: readonly (readonly [say: string, content: string, alone: string | RegExp])[] = [
  ['a valid file', GOOD, 'file: gw1 gw2'],
  ['an address', text('[{ node: gw1, publicAddress: 192.0.2 }, { node: gw2 }]'), 'rows: gw1! gw2'],
  ['an address of IPv6', text("[{ node: gw1, publicAddress: 'fd00::1' }, { node: gw2 }]"), 'rows: gw1! gw2'],
  ['a list', text('[{ node: gw1, publicAddress: [192.0.2.1] }, { node: gw2 }]'), 'rows: gw1! gw2'],
  ['a port outside', text('[{ node: gw1, publicPort: 70000 }, { node: gw2 }]'), 'rows: gw1! gw2'],
  ['a port inside', text('[{ node: gw1 }, { node: gw2, listenPort: "4500" }]'), 'rows: gw1 gw2!'],
  ['a port that Sealane has', text('[{ node: gw1 }, { node: gw2, listenPort: 4810 }]'), 'rows: gw1 gw2!'],
  ['a lane', text('[{ node: gw1, lane: 9 }, { node: gw2 }]'), 'rows: gw1! gw2'],
  ['a misspelt field', text('[{ node: gw1, publicAdress: 192.0.2.1 }, { node: gw2 }]'), 'rows: gw1! gw2'],
  ['a lane of two', text('[{ node: gw1, lane: 1 }, { node: gw2, lane: 1 }]'), 'rows: gw1 gw2'],
  ['a node without a name', text('[{ lane: 1 }, { node: gw2 }]'), /^refused: .*:6:14: spec.gateways\[0\].node: /],
  ['no row', text('[gw1, { node: gw2 }]'), /^refused: /],
  ['ranges', text('[{ node: gw1 }]', 'podCIDRs: [10.42.0.0]'), /^refused: .*:5:14: spec.podCIDRs\[0\]: /],
  ['ranges and a row', text('[{ node: gw1, lane: 9 }]', 'podCIDRs: [10.42.0.0]'), /^refused: .*\n.*lane/],
  ['no YAML', 'spec: [', /^refused: /],
  ['nothing', '', /^refused: /],
]

t.test('the last valid content counts, and without one the wrong rows of gateways do not', async (t) => {
  for (const [say, content, alone] of ROWS) {
    t.match(running(content), alone, say)
    t.match(running(content, text('[{ node: old }]')), content === GOOD ? 'file: gw1 gw2' : 'kept: old', say)
    t.match(running(content, text('[{ node: old, lane: 9 }]')), alone, `${say}, and what is kept is wrong, too`)
    t.equal(parseSiteDocument('/s/site.yaml', content).problems.length > 0, content !== GOOD, say)
  }
  const gateways = planRunningSite('/s/site.yaml', text('[{ node: gw1, publicAddress: 192.0.2 }]'), undefined).config
  t.match(problemOf(gateways.gateways, 'gw1'), /^Node gw1: annotation sealane.io\/public-address "192.0.2": expected /)
})

t.test('what is kept, and what the log says', async (t) => {
  const folder = temporaryFolder(t)
  const file = join(folder, 'site.yaml')
  const read = async (content: string): Promise<string> => {
    writeFileSync(file, content)
    const logger = new CapturingLogger()
    await readRunningSite(file, logger)
    return logger.lines.map(({ message, fields }) => `${message}: ${String(fields['why'])}`).join()
  }
  const bad = text('[{ node: gw1, publicAddress: 192.0.2 }]')
  const where = `${file}:6:42: spec.gateways[0].publicAddress: expected `
  const rows = `the site file is not valid: the gateways in these lines take no lane: ${where}`
  await keepSiteText(file, bad)
  t.ok((await read(bad)).startsWith(rows), 'a wrong one is not kept')
  await keepSiteText(file, GOOD)
  t.equal(await read(GOOD), '')
  t.ok((await read(bad)).startsWith(`the site file is not valid: its last valid content counts: ${where}`))
})

t.test('any row: it is valid, or its node cannot be a gateway', async () => {
  const value = fc.oneof(
    fc.constantFrom('192.0.2.1', 'gw.example.org', 4500, 7, 0, null, true),
    fc.jsonValue({ maxDepth: 1 }),
    fc.double(),
  )
  const some = fc.dictionary(fc.constantFrom('lane', 'publicAddress', 'publicPort', 'listenPort', 'other'), value)
  fc.assert(
    fc.property(some, (fields) => {
      const content = text(
        JSON.stringify([
          { ...fields, node: 'gw1' },
          { node: 'gw2', lane: 3 },
        ]),
      )
      const { config, from } = planRunningSite('/s/site.yaml', content, undefined)
      const isSecond = config.gateways[1]?.node === 'gw2' && problemOf(config.gateways, 'gw2') === undefined
      const isTwice = config.gateways[0]?.lane === 3
      return isSecond && (from === 'file' || isTwice || problemOf(config.gateways, 'gw1') !== undefined)
    }),
    { numRuns: 100 },
  )
})
