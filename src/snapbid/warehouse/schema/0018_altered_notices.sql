-- What else SSPs are shown of their notices (contract 11).
insert into anomaly values
    (51, 'win_altered'), (52, 'billing_altered'), (54, 'loss_altered'),  -- known once read again
    (60, 'lost_and_won');              -- a loss, and a win or billing, of one bid
