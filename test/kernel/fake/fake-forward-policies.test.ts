import t from 'tap'
import { FakeForwardPolicies } from '../../../kernel/fake/fake-forward-policies.ts'
import { forwardPoliciesCompliance } from '../../compliance/forward-policies.ts'

forwardPoliciesCompliance(t, () => new FakeForwardPolicies())
