/** The certificate authority of a broker that runs on a cluster: the same commands, in its pod. */
import type { AuthorityStatus, AuthorityStep, AuthorityStore } from '../../../compose/parts/broker-authority.ts'
import type { CommandContext } from '../../context.ts'
import { type AskBroker, type BrokerInPod, askForJson, withPodBroker } from './pod-broker.ts'

export type Authority = Omit<AuthorityStore, 'close'>

export function withPodAuthority<T>(
  target: BrokerInPod,
  context: CommandContext,
  work: (authority: Authority) => Promise<T>,
): Promise<T> {
  return withPodBroker(target, context, (ask) => work(podAuthority(ask)))
}

/** Throws what askForJson() throws. A file is one in the pod. */
export function podAuthority(ask: AskBroker): Authority {
  const step = (...words: string[]): Promise<AuthorityStep> =>
    askForJson<AuthorityStep>(ask, ['broker', 'ca', ...words])
  return {
    status: () => askForJson<AuthorityStatus>(ask, ['broker', 'ca', 'status']),
    rotate: ({ certificate, force }) => {
      const file = certificate === undefined ? [] : ['--certificate', certificate]
      return step('rotate', ...file, ...(force ? ['--force'] : []))
    },
    finish: ({ force }) => step('finish', ...(force ? ['--force'] : [])),
    abort: () => step('abort'),
  }
}
