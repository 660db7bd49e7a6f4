-- A bid that got 204 since another family of SSPs has one on its auction and impression.
insert into anomaly values (41, 'bid_taken');
