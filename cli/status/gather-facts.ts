/** All facts about what is looked at, asked at once: the screen is as late as its slowest answer, and no later. */
import { FACTS_FORMAT, type Fact, type FactSet } from '../../explain/facts/fact.ts'
import { sealaneVersion } from '../../runtime/version.ts'

/** `ask` gives those of the cluster or the site. */
export async function gatherFacts(target: string, ask: () => Promise<readonly Fact[]>): Promise<FactSet> {
  const facts = await ask()
  const takenAt = new Date().toISOString()
  const report = { part: 'cli', name: 'sealane', version: sealaneVersion(), ready: true }
  const command: Fact = { t: 'report', source: 'this command', at: takenAt, report }
  return { format: FACTS_FORMAT, takenAt, target, facts: [...facts, command] }
}
