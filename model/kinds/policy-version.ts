/** The description of the version of a policy that its status keeps. */
import type { z } from 'zod'
import { anyInteger, map, text } from './fields.ts'

/** Takes the description of the spec. */
export const versionInForce = <T extends z.ZodType>(spec: T) =>
  map(
    {
      uid: text('The metadata.uid of the policy that said it.'),
      generation: anyInteger('int64', 'The metadata.generation that said it.', 0),
      spec,
    },
    'The latest valid version. It counts while the present spec is not valid, also for parts that start then.',
  )
