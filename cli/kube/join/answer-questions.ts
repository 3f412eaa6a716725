/** What looking at a cluster could not tell: a person is asked. */
import { UserError } from '../../../runtime/user-error.ts'
import type { Ask } from '../../discovery/discover.ts'
import type { JoinOptions } from './plan-join.ts'

export interface Answering {
  /** What is known. */
  readonly chosen: JoinOptions
  /** Asks a person; undefined where nobody can be asked. */
  readonly ask: ((question: Ask) => Promise<readonly string[]>) | undefined
}

/** Throws UserError with the flag that says it, where nobody can be asked. */
export async function answered(asks: readonly Ask[], { chosen, ask }: Answering): Promise<JoinOptions> {
  let answers = chosen
  for (const question of asks) {
    if (ask === undefined) throw new UserError(`${question.why}: say ${FLAGS[question.field]}`, { exitCode: 2 })
    const said = await ask(question)
    answers =
      question.field === 'gateways'
        ? { ...answers, gateways: said.map((node) => ({ node })) }
        : { ...answers, [question.field]: said }
  }
  return answers
}

const FLAGS: Readonly<Record<Ask['field'], string>> = {
  podCIDRs: '--pod-cidr CIDR',
  serviceCIDRs: '--service-cidr CIDR',
  gateways: '--gateway NODE',
}
